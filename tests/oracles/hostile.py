"""Texts that tempt an escaping function to fail."""

from __future__ import annotations

from hypothesis import strategies as st

SPECIAL = " \t\"'\\%$`;#{}()[]<>|&*?!~=:@+-,.^/" + "aAnsxuUtN0178" + "\u00a0\u200b\u202e\ufeffé漢🜁"
"""Marks of shells, of systemd and of docker, letters that form escapes, and characters that do not print."""

texts = st.one_of(
    st.text(alphabet=st.sampled_from(SPECIAL), max_size=24),
    st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=24),
    st.sampled_from(["", ";", "#", "$", "$$", "%", "%%", "%n", "${HOME}", "$HOME", "\\", "\\;", "--", "-"]),
)
"""One word; every one of them can be written."""

REFUSED = ["a\nb", "a\rb", "a\0b", "\x1b[31m", "a\x7f", "a\x85b", "a\u2028b", "a\u2029b", "a\udc80b"]
"""Words that no target can carry: line ends, control characters, undecodable bytes."""
