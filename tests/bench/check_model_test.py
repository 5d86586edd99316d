#!/usr/bin/env python3
"""What bench/ratio/check_model.py asks for and concludes; it starts no program."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/ratio"))
import check_model  # noqa: E402


class CheckModelTest(unittest.TestCase):
    def test_the_grid_differs_in_everything(self):
        points = check_model.grid()
        self.assertGreaterEqual(len(points), 12)
        self.assertEqual(len(set(points)), len(points))
        for name in ("hidden", "bandwidth", "rtt_ms", "in_flight"):
            self.assertGreater(len({getattr(point, name) for point in points}), 1, name)

    def test_units(self):
        self.assertEqual(check_model.bits_per_second("50M"), 50e6)
        self.assertEqual(check_model.bits_per_second("2.5G"), 2.5e9)

    def test_an_emulated_device_slows_with_the_square(self):
        first, last = (check_model.device_flags(hidden, False) for hidden in (256, 512))
        self.assertEqual(4 * float(first[1]), float(last[1]))
        self.assertEqual(4 * float(first[3]), float(last[3]))
        self.assertEqual(check_model.device_flags(256, True), [])

    def test_the_difference_is_of_the_mean_in_points(self):
        busy = check_model.Busy
        line, difference = check_model.table_line(check_model.Point(256, "50M", 100, 4), busy(0.70, 0.045),
                                                  [busy(0.60, 0.045), busy(0.64, 0.045)])
        self.assertAlmostEqual(difference, 8)
        self.assertEqual(len(line), len(check_model.HEAD))
        self.assertTrue(line.endswith("-8.0"))


if __name__ == "__main__":
    unittest.main()
