"""The part of gpu-check that trains the quickstart, several peers on one card."""

import pathlib

QUICK_STEPS = 60
BY_LINKS = "could not go from GPU to GPU: "  # what a peer logs, and the reason behind it
# What a machine with GPUs runs by default: bf16 products, h8 on the links; with half the optimizer's memory; and with sums of a
# stage's peers from GPU to GPU.
FORMS = (("quickstart", {}), ("quickstart-state-8bit", {"optimizer.state": "8bit"}),
         ("quickstart-islands", {"net.islands": "host"}))


def text_to_train_on():
    """The quickstart's own, or the pack's where there is no compiler."""
    return {} if any(pathlib.Path("/usr/include/c++").glob("*/*")) else {"data.files": '["text/*.md"]'}


def why_by_links(check, name, steps):
    """Why sums went over links although one card has all peers, or None."""
    said = (line for path in sorted((check.pack / "runs" / name / "logs").glob("*.log"))
            for line in path.read_text(errors="replace").splitlines() if BY_LINKS in line)
    first = next(said, None)
    if first is not None:
        return first.split(BY_LINKS, 1)[1]
    sent = sum(step.get("averaging_bytes", 0) for step in steps)
    return f"its averages took {sent} bytes over links, without a reason in its logs" if sent else None


def quickstart(check, gpu_check):
    if check.needs("quickstart", "swarmline") is None:
        return
    for name, sets in FORMS:
        if check.on_cpu() and "net.islands" in sets:
            continue
        sets = {**sets, **({"run.steps": QUICK_STEPS} if check.options.quick else {}), **text_to_train_on()}
        ran = gpu_check.launch(check, "quickstart", name, "configs/quickstart.toml", sets)
        if ran is None:
            continue
        status, steps, seconds = ran
        loss, unigrams = status.get("held_out_loss"), status.get("unigram_entropy")
        fine = status.get("state") == "done" and loss is not None and unigrams is not None and loss < unigrams
        check.add("quickstart", f"{name}: 4 stages x 2 peers", "passed" if fine else "failed",
                  f"held-out loss {loss} (unigrams: {unigrams}) in {seconds:.0f} s, device = {check.options.device}")
        check.figures.append({"op": name, "eval_loss": loss, "seconds": round(seconds, 1),
                              "tokens_per_second": status.get("mean_tokens_per_second")})
        if "net.islands" in sets:
            why = why_by_links(check, name, steps)
            check.add("quickstart", f"{name}: sums go from GPU to GPU", "failed" if why else "passed", why or "")
