"""Scripts that put no space between words."""

from __future__ import annotations

import re
import unicodedata

# Thai and Lao, Burmese, Khmer, kana, Han, half-width kana, Han beyond the first plane.
_SPACELESS = re.compile(
    "[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)


def spaceless_letters(text: str) -> int:
    """Count the letters of scripts without spaces, each of which may be a word; their marks and digits are none."""
    return 0 if text.isascii() else sum(unicodedata.category(sign)[0] == "L" for sign in _SPACELESS.findall(text))


def count_words(text: str) -> int:
    """Count what stands between white space; of a script without spaces the letters."""
    return sum(spaceless_letters(chunk) or 1 for chunk in text.split())
