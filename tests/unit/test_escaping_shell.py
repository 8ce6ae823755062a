"""A word of the page's shell form is the word that a shell passes on."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kimi_infra.domain.launch import EnvEntry
from kimi_infra.domain.provenance import Origin, Provenance
from kimi_infra.errors import UnsafeTextError
from kimi_infra.rendering import shell
from tests.oracles import hostile

pytestmark = pytest.mark.fast


@settings(deadline=None, max_examples=300)
@given(words=st.lists(hostile.texts, max_size=6))
def test_a_shell_passes_the_words_on(words: list[str]) -> None:
    """POSIX word splitting and quote removal give the same words; whole placeholders are meant to expand."""
    assume(not any(word.startswith("$") and word[1:].isidentifier() for word in words))
    assert shlex.split(" ".join(shell.quote(word) for word in words)) == words


def test_a_real_shell_agrees() -> None:
    """``sh`` itself passes hostile words on, in one run."""
    words = [
        "",
        "a b",
        "it's",
        '"',
        "\\",
        "\\\\n",
        "`id`",
        "$(id)",
        "${HOME}",
        "*",
        "~",
        "~root",
        "a;b",
        "#",
        "é\u00a0",
    ]
    words += ["{a,b}", "!x", "tab\t", "&", "|", '{"k":[1,"v"]}', "--x=$HOME"]
    script = "printf '%s\\0' " + " ".join(shell.quote(word) for word in words)
    done = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, check=True, env={"HOME": "/x"}
    )
    assert done.stdout.split("\0")[:-1] == words


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("$HEAD_IP", "$HEAD_IP"),
        ("$HEAD_IP:8000", "'$HEAD_IP:8000'"),  # not a placeholder as a whole
        ("vllm/vllm-openai:kimi-k31", "vllm/vllm-openai:kimi-k31"),
        ('{"a":1}', "'{\"a\":1}'"),
        ("it's", "'it'\\''s'"),
        ("", "''"),
    ],
)
def test_quotes_stand_where_the_page_has_them(word: str, written: str) -> None:
    """Plain words and whole placeholders are bare, everything else is in single quotes."""
    assert shell.quote(word) == written


@pytest.mark.parametrize("word", hostile.REFUSED)
def test_control_characters_are_refused(word: str) -> None:
    """A line end inside quotes would be legal and unreadable; it is refused as everywhere."""
    with pytest.raises(UnsafeTextError, match="cannot be written"):
        shell.quote(word)


def test_a_variable_has_a_name() -> None:
    """An export line cannot smuggle a command in its name."""
    entry = EnvEntry(name="A;id", value="1", provenance=Provenance(origin=Origin.OURS, source="test"))
    with pytest.raises(UnsafeTextError, match="not the name of a variable"):
        shell.assignment(entry)
