# SPDX-License-Identifier: Apache-2.0
from tests.programs.bench.aggregates import Aggregated, lines, missed

STOCK = Aggregated("mean", "stock", 10, [], [9.0, 8.0, 30.0], [9.0] * 3, [1_000_000] * 3)


def ours(wall_s: list[float], shuffle_bytes: int) -> Aggregated:
    return Aggregated("mean", "updraft", 10, [], wall_s, [1.0] * 3, [shuffle_bytes] * 3)


def test_what_keeps_both_promises_misses_none() -> None:
    assert not missed(STOCK, ours([3.0, 2.0, 1.0], 100_000))


def test_speed_is_that_of_pairs_and_not_of_medians() -> None:
    # The medians are 9 and 3; two of three pairs are slower than that.
    assert missed(STOCK, ours([4.0, 3.0, 3.0], 100)) == ["2.67 times as fast as stock, promised at least 3"]


def test_bytes_are_held_against_those_of_stock() -> None:
    assert missed(STOCK, ours([1.0] * 3, 100_001)) == ["0.100 of the bytes of stock, promised at most 0.1"]


def test_the_lines_say_what_was_measured() -> None:
    stock, own, *ratios = lines(STOCK, ours([3.0, 2.0, 1.0], 5_000))
    assert " ".join(stock.split()) == "stock 9.00 s 9.00 CPU s 1,000,000 bytes through the shuffle"
    assert own.split()[:5] == ["updraft", "2.00", "s", "1.00", "CPU"]
    assert ratios == ["4.00 times as fast (median of pairs; 3.00 to 30.00)", "0.0050 of the bytes"]
