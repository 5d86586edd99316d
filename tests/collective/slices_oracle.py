#!/usr/bin/env python3
"""The slices that an average is cut into take no longer than a linear program's optimum (HiGHS), but for rounding.

usage: slices_oracle.py SLICES_PLANNER

Ends with 77 (skipped) where Python has no highspy (scripts/bootstrap --tests puts it into .deps/highspy).
"""

import json
import pathlib
import random
import subprocess
import sys

SKIPPED = 77
CASES = 600
MEMBERS = [*range(1, 17), 24, 48]  # in groups this large what one member says may hurt by more than its bound
SPREAD_MAX = 1000
TOLERANCE = 1e-7  # the solver's, relative to the optimum

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / ".deps/highspy"))
try:
    import highspy
    import numpy
except ImportError as error:
    print(f"skipped: {error} (scripts/bootstrap --tests puts highspy into .deps/highspy)")
    sys.exit(SKIPPED)


class Mistake(AssertionError):
    pass


def expect(condition, what):
    if not condition:
        raise Mistake(what)


def vectors_each_way(members):
    """For each member two rows, of what leaves it and what comes to it, in shares of the vector by whose slice they are of."""
    leaves = [[0] * members for _ in range(members)]
    comes = [[0] * members for _ in range(members)]
    for reducer in range(members):
        for other in range(members):
            if other == reducer:
                continue
            leaves[other][reducer] += 1  # its part of that slice, to be summed
            comes[reducer][reducer] += 1
            leaves[reducer][reducer] += 1  # the sum
            comes[other][reducer] += 1
    return leaves, comes


def seconds(bandwidths, slices):
    """Of the slowest member whose bandwidth is known, a vector being 1 long."""
    rows = zip(*vectors_each_way(len(bandwidths)), bandwidths)
    return max(
        (max(sum(count * part for count, part in zip(row, slices)) for row in (leaves, comes)) / b
         for leaves, comes, b in rows if b > 0), default=0)


def optimum(bandwidths):
    """The least that any slices take: min T, each member's bytes either way <= bandwidth * T; who has no bandwidth sums nothing."""
    members, fastest = len(bandwidths), max(bandwidths)
    solver = highspy.Highs()
    solver.silent()
    for tolerance in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
        solver.setOptionValue(tolerance, 1e-10)
    for b in bandwidths:
        solver.addVariable(lb=0, ub=1 if b > 0 else 0)
    solver.addVariable(lb=0, obj=1)  # T
    columns = numpy.arange(members + 1, dtype=numpy.int32)
    solver.addRow(1, 1, members, columns[:members], numpy.ones(members))
    for rows in vectors_each_way(members):
        for row, b in zip(rows, bandwidths):
            if b > 0:
                solver.addRow(-highspy.kHighsInf, 0, members + 1, columns, numpy.array([*row, -b / fastest], dtype=float))
    solver.run()
    expect(solver.getModelStatus() == highspy.HighsModelStatus.kOptimal, f"the solver has no optimum for {bandwidths}")
    return solver.getObjectiveValue() / fastest


def bandwidths_of(draw):
    members = draw.choice(MEMBERS)
    spread = draw.choice([1, 1.5, 10, SPREAD_MAX])
    unit = draw.choice([1e-3, 1, 1e9])
    kinds = [unit * spread**draw.random() for _ in range(draw.choice([1, 2, members]))]
    drawn = [draw.choice(kinds) for _ in range(members)]
    if draw.random() < 0.2:  # one says far more than the others
        drawn[draw.randrange(members)] *= SPREAD_MAX
    if draw.random() < 0.3:  # who only gives slices away, or says nothing
        drawn = [b if draw.random() < 0.6 else 0 for b in drawn]
    if not any(drawn):
        drawn[draw.randrange(members)] = unit
    return drawn


def sizes(bounds):
    return [end - begin for begin, end in zip(bounds, bounds[1:])]


def expect_best(bandwidths, bounds, elements, alignment, best):
    """`bounds` take as long as the optimum, and what ends that are rounded to `alignment` may add."""
    parts = [size / elements for size in sizes(bounds)]
    took = seconds(bandwidths, parts)
    expect(took >= best * (1 - TOLERANCE), f"{bandwidths}: {took}, less than the optimum {best}: the oracle is wrong")
    slowest = min(b for b in bandwidths if b > 0)
    rounding = max(len(bandwidths) - 2, 0) * alignment / elements / slowest
    expect(took <= best * (1 + TOLERANCE) + rounding, f"{bandwidths}: {took}, the optimum is {best}, rounding explains {rounding}")


def check_weights(bandwidths, elements, planned):
    best = optimum(bandwidths)
    for what in ("cost", "weights"):
        took = planned["cost"] if what == "cost" else seconds(bandwidths, planned["weights"])
        expect(abs(took - best) <= best * TOLERANCE + 1e-12 / max(bandwidths), f"{bandwidths}: {what}: {took}, the optimum is {best}")
    expect_best(bandwidths, planned["bounds"], elements, 1, best)
    for b, weight, size in zip(bandwidths, planned["weights"], sizes(planned["bounds"])):
        expect(b > 0 or weight == size == 0, f"{bandwidths}: who has no bandwidth is to sum {weight}, {size} elements")


def check_run(bandwidths, elements, planned, constants):
    """As a run cuts them: the unknown counts as most do, nobody as far from most, and slices are equal where that is as good."""
    known = sorted(b for b in bandwidths if b > 0)
    usual, factor = known[len(known) // 2], constants["factor_max"]
    counted = [min(max(b, usual / factor), usual * factor) if b > 0 else usual for b in bandwidths]
    best, members = optimum(counted), len(bandwidths)
    worth = best / seconds(counted, [1 / members] * members) if members > 2 else 1
    limit = 1 - constants["worth_it"]
    if not planned["run_ends"]:
        expect(worth >= limit - TOLERANCE, f"{bandwidths}: equal slices, where the optimum takes {worth:.4f} of their time")
        return False
    expect(worth <= limit + TOLERANCE, f"{bandwidths}: cut, where the optimum takes {worth:.4f} of the time of equal slices")
    expect_best(counted, [0, *planned["run_ends"]], elements, constants["alignment"], best)
    return True


def main():
    draw = random.Random(1)
    cases = [(draw.choice([10_000, 1 << 20, 1 << 28]) + draw.randrange(5000), bandwidths_of(draw)) for _ in range(CASES)]
    lines = "".join(" ".join(map(repr, (elements, *bandwidths))) + "\n" for elements, bandwidths in cases)
    done = subprocess.run([sys.argv[1]], input=lines, capture_output=True, text=True, check=True)
    constants, *plans = map(json.loads, done.stdout.splitlines())
    expect(len(plans) == CASES, f"{len(plans)} plans of {CASES} cases")
    cut = 0
    for (elements, bandwidths), planned in zip(cases, plans):
        check_weights(bandwidths, elements, planned)
        cut += check_run(bandwidths, elements, planned, constants)
    expect(CASES / 10 < cut < CASES, f"{cut} of {CASES} runs cut unequal slices: the cases tell nothing")
    print(f"{CASES} cases are as good as the optimum, {cut} of them cut unequally in a run")


if __name__ == "__main__":
    main()
