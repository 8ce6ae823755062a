"""A variable written into docker's env file reaches the container as it was meant."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_infra.errors import UnsafeTextError
from kimi_infra.rendering import envfile
from tests.oracles import docker_env, hostile

pytestmark = pytest.mark.fast

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)


@settings(deadline=None, max_examples=300)
@given(variables=st.dictionaries(NAMES, hostile.texts, max_size=6))
def test_what_docker_reads_is_what_was_written(variables: dict[str, str]) -> None:
    """Whatever the values, docker's own rules read back the same pairs in the same order."""
    text = envfile.docker(variables.items())
    assert docker_env.entries(text.encode()) == list(variables.items())


def test_values_are_literal() -> None:
    """Nothing is quoted or trimmed: docker would keep quotes, and it keeps white space."""
    pairs = [("A", ' "x" '), ("B", ""), ("C", "#no=comment"), ("D", "$HOME")]
    assert envfile.docker(pairs) == 'A= "x" \nB=\nC=#no=comment\nD=$HOME\n'


@pytest.mark.parametrize("value", hostile.REFUSED)
def test_control_characters_are_refused_without_showing_the_value(value: str) -> None:
    """A secret with a line end would become two lines; the refusal names the variable and not the secret."""
    with pytest.raises(UnsafeTextError, match="env file: HF_TOKEN") as caught:
        envfile.docker([("HF_TOKEN", f"canary{value}canary")])
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "#A", "A B", " A", "A=B", "1A", "A-B", "\ufeffA", "É", "A\n"])
def test_names_are_those_of_variables(name: str) -> None:
    """A name that docker would skip, cut or refuse is refused here."""
    with pytest.raises(UnsafeTextError, match="not the name of a variable"):
        envfile.docker([(name, "x")])


def test_a_name_given_twice_is_refused() -> None:
    """Docker would let one of the two win without a word."""
    with pytest.raises(UnsafeTextError, match="A is given twice"):
        envfile.docker([("A", "1"), ("A", "2")])


def test_the_longest_line_is_docker_s() -> None:
    """A line of 65 535 bytes is still read; one byte more is refused before docker refuses the file."""
    fits = "é" * 32766 + "x"
    assert docker_env.entries(envfile.docker([("A", fits)]).encode()) == [("A", fits)]
    with pytest.raises(UnsafeTextError, match="65536 bytes"):
        envfile.docker([("A", fits + "x")])
