"""How many slots stand in one row of a strip."""

from __future__ import annotations

import pytest

from helpers.draw.strip import FRIENDLY, fold


@pytest.mark.parametrize("multiple", [1, 2, 4])
@pytest.mark.parametrize("most", range(4, 33))
def test_a_row_is_no_longer_than_it_may_be_and_fills_every_row_where_that_is_possible(most, multiple):
    for count in range(most + 1, 120):
        row = fold(count, most, multiple)
        assert row <= most
        assert row % multiple == 0
        filling = [n for n in range(most // 2 + 1, most + 1) if count % n == 0 and n % multiple == 0]
        if filling:
            assert row == max(filling)
        else:
            assert row == max(n for n in FRIENDLY if n <= most and n % multiple == 0)


@pytest.mark.parametrize("count", range(8))
def test_what_fits_stands_in_one_row(count):
    assert fold(count, 7, 4) == max(count, 1)


def test_a_row_holds_a_whole_group_even_where_it_gets_too_long():
    assert fold(12, 3, 7) == 7


def test_the_friendly_numbers_fall_to_one():
    assert sorted(set(FRIENDLY), reverse=True) == list(FRIENDLY)
    assert FRIENDLY[-1] == 1
