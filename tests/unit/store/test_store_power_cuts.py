"""Tests that nothing confirmed is lost and nothing torn is served, wherever the power goes."""

import pytest
from lives import Lives, end_by_failure, fail_syncs, run_lives
from representatives import representatives

from fjm2.store.sim_disk import PowerCutError


@pytest.mark.parametrize("seed", representatives(range(40), *range(20)))
def test_nothing_confirmed_is_lost_over_many_lives(seed: int) -> None:
    run_lives(seed, lives=6, steps=60)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_nothing_confirmed_is_lost_over_many_lives_of_many_seeds(seed: int) -> None:
    run_lives(seed, lives=12, steps=120)


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_in_any_call_loses_nothing(seed: int) -> None:
    store = Lives(seed)
    store.open()
    store.live(40)
    calls = store.disk.calls
    assert calls > 60
    for cut_at in range(1, calls + 1, 2 if seed else 1):
        store = Lives(seed)
        store.disk.cut_at = cut_at
        with pytest.raises(PowerCutError):
            store.open_and_live(40)
        store.end()
        store.open()


@pytest.mark.parametrize("seed", range(15))
def test_a_failed_sync_is_final_and_loses_nothing(seed: int) -> None:
    store = Lives(seed)
    store.open()
    for _ in range(4):
        assert store.journal is not None
        incarnation = store.journal.identity.incarnation
        fail_syncs(store.disk, store.random, 0.1)
        with pytest.raises(OSError, match="Input/output error"):
            store.live(400)
        store.disk.fail = lambda _call, _name: 0
        end_by_failure(store)
        store.open()
        assert store.journal.identity.incarnation != incarnation
