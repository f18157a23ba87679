"""A text cut into its words: what a model gets to see of it."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def words(text: str) -> list[str]:
    """The words in lower case, without punctuation: letters and digits, with apostrophes inside ("don't").

    Characters that can be written in two ways are written in one (NFC). Scripts without spaces, such as Chinese, give
    one word per run of characters: segment them first.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).replace("’", "'")
    return _WORD.findall(text.lower())
