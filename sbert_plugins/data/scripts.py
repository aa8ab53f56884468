"""Scripts that put no space between words."""

from __future__ import annotations

import re

# Thai and Lao, Burmese, Khmer, kana, Han, half-width kana, Han beyond the first plane.
_SPACELESS = re.compile(
    "[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)


def spaceless_letters(text: str) -> int:
    """Count the letters of scripts without spaces, each of which may be a word."""
    return 0 if text.isascii() else len(_SPACELESS.findall(text))
