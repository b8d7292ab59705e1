"""Tests of the text format of metrics, which Prometheus's own parser reads: names, labels and digits."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from fjm2.base.exposition import Family, text

label_values = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.integers(0, 1 << 60) | st.floats(allow_nan=False, allow_infinity=False, width=32) | st.booleans()


@given(st.lists(st.tuples(label_values, values), min_size=1, unique_by=lambda item: item[0]))
def test_the_written_text_is_read_back(samples: list[tuple[str, float]]) -> None:
    family = Family("fjm2_things", "gauge", "Whatever there is.", [({"name": name}, value) for name, value in samples])
    (found,) = text_string_to_metric_families(text([family]))
    assert (found.name, found.type, found.documentation) == ("fjm2_things", "gauge", "Whatever there is.")
    assert [(one.labels["name"], one.value) for one in found.samples] == samples


def test_a_large_counter_has_all_its_digits() -> None:
    count = 123_456_789_012_345_678
    assert f"fjm2_bytes_total {count}\n" in text([Family("fjm2_bytes_total", "counter", "Bytes.", [({}, count)])])


def test_a_family_without_samples_is_left_out() -> None:
    assert text([Family("fjm2_bytes_total", "counter", "Bytes.", [])]) == "\n"
