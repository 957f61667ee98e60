"""A drawing is a value: an SVG picture and the sentence that says what there is to see."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

NARROWEST = 480  # pixels; narrower, a picture is moved sideways


@dataclass(frozen=True)
class Drawing:
    """An SVG picture with its sentence.

    `svg` is a complete `<svg>` element with its own size in pixels. `sentence` says what the
    picture shows; it is the alternative text, and what a text console prints.
    As the last line of a cell it is shown as an image, which JupyterLab keeps even in a notebook
    that is not trusted yet.
    """

    svg: str
    sentence: str

    def __repr__(self) -> str:
        return self.sentence

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self.sentence}

    def html(self) -> str:
        """Return one `<img>` element that holds the whole picture.

        The picture is percent-encoded, not base64, and keeps its lines, so that a change of it can be read in a diff.
        Where the page is narrow it shrinks, but not below the width at which its smallest text can be read.
        """
        # Attributes in single quotes stay as they are inside the double quotes of `src`. Text has no raw quotes.
        source = quote(self.svg.replace('"', "'"), safe=" !$'()*+,-./:;=?@[]^_`{|}~\n")
        width = re.search(r'<svg [^>]*\bwidth="(\d+)"', self.svg)
        least = f"min-width:{min(int(width[1]), NARROWEST)}px;" if width else ""
        style = f"max-width:100%;{least}height:auto"
        return f'<img alt="{escape(self.sentence)}" style="{style}" src="data:image/svg+xml,{source}">'

    def save(self, path: str | Path) -> Path:
        """Write the picture as an SVG file and return its path. An existing file is not overwritten."""
        path = Path(path)
        with path.open("x", encoding="utf-8") as file:
            file.write(self.svg)
        return path
