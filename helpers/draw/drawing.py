"""A drawing is a value: an SVG picture and the sentence that says what there is to see."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote


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

        The picture is percent-encoded, not base64, so that a change of it can be read in a diff.
        """
        source = "data:image/svg+xml," + quote(self.svg, safe=" !$'()*+,-./:;=?@[]^_`{|}~<>&").replace("&", "%26")
        return f'<img alt="{escape(self.sentence)}" src="{escape(source)}">'

    def save(self, path: str | Path) -> Path:
        """Write the picture as an SVG file and return its path. An existing file is not overwritten."""
        path = Path(path)
        with path.open("x", encoding="utf-8") as file:
            file.write(self.svg)
        return path
