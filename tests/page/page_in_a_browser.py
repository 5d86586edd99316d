#!/usr/bin/env python3
"""The page of a real run in a real browser: it shows what the run does, follows it, and complains of nothing.

usage: page_in_a_browser.py SWARMLINE
Exits with 77 where there is no Chromium.
"""

import re
import sys

from browser import Browser, find_browser
from served_run import SKIPPED, Runs, check, split_url, wait_for

SECONDS = 60


def look(browser, base, token):
    browser.size(390, 844, mobile=True)
    browser.open(f"{base}?token={token}")
    check(browser.until("run.points.length >= 3 && document.querySelectorAll('#loss path').length >= 1", SECONDS),
          "a plot of the loss", browser.problems)
    check(browser.value("location.href") == base, "the token is in the address bar no more")
    check(browser.until("document.querySelectorAll('#peers tbody tr').length === 4", SECONDS), "a row for each peer")
    check(browser.until("document.querySelectorAll('.stage').length === 2", SECONDS), "a card for each stage")
    check(browser.value("by('run').textContent") == "tiny", "the run's name")
    check(browser.value("document.documentElement.scrollWidth") <= 390, "it fits a telephone")
    tiles = "[...document.querySelectorAll('#tiles > div')].map((tile) => tile.textContent)"
    check(browser.value(f"{tiles}.some((tile) => /^Cost[0-9.]+ of 1,000,000.00 USD$/.test(tile))"), "what it costs")
    check(browser.value(f"{tiles}.some((tile) => /^Cost an hour1.00 USD$/.test(tile))"), "what an hour costs")
    check(browser.value("by('facts').textContent.includes('Waste: waiting to train')"), "what of it is waste")
    step = browser.value("run.status.step")
    check(browser.until(f"run.status.step > {step} && run.points.at(-1).step > {step}", SECONDS), "it follows the run")
    # Again without the token in the URL: the tab knows it.
    browser.open(base)
    check(browser.until("run.points.length >= 3", SECONDS), "the tab remembers its token")
    for axis in ("minutes", "tokens", "step"):
        browser.value(f"by('axis').value = '{axis}', by('axis').dispatchEvent(new Event('change'))")
        check(browser.until("document.querySelectorAll('#loss path').length >= 1", SECONDS), axis)


def look_without_a_token(browser, base):
    browser.value("sessionStorage.clear()")
    browser.open(base)
    check(browser.until("!by('token').hidden && by('main').hidden", SECONDS), "it asks for a token, and shows nothing")


def main():
    program = find_browser()
    if program is None:
        print("skipped: there is no chromium here (scripts/bootstrap --tests fetches one)")
        sys.exit(SKIPPED)
    with Runs(sys.argv[1]) as runs, Browser(program) as browser:
        launch = runs.launch("tiny", "run.steps=100000", "money.coordinator_price=1", "money.budget=1000000")
        base, token = runs.page_of("tiny", launch)
        look(browser, base, token)
        check(not browser.problems, "the browser complains:", *browser.problems)
        launch.interrupt()
        check(browser.until("run.over", SECONDS), "it shows that the run is over")
        check(launch.wait() == 0, launch.text())
        show = runs.start("show", "show", "runs/tiny")
        base, token = split_url(wait_for(lambda: re.search(r"http://\S+", show.text()), "the URL of show").group(0))
        browser.open(f"{base}?token={token}")
        check(browser.until("run.over && run.points.length >= 3", SECONDS), "show shows it, too")
        problems = [each for each in browser.problems if "net::ERR" not in each]  # of the coordinator that is gone
        check(not problems, "the browser complains:", *problems)
        look_without_a_token(browser, base)
    print("ok")


if __name__ == "__main__":
    main()
