"""What every picture is made of: colours, text sizes, number formats and SVG elements.

A picture is a string. Its ground is transparent, so it looks at home on a white and on a dark page. Filled
shapes carry dark text (`INK`); free text and lines take the page's own grey where the picture is part of the
page, and a mid grey that can be read on black and on white where it is an image.

No element has an id, so any number of pictures can stand in one page without a clash. What tests and scripts
look for is marked with `data-` attributes instead. Lengths are pixels.
"""

from __future__ import annotations

from html import escape

from helpers.model.finding import kind_of

# One colour for one role, in all chapters. A colour is never the only cue.
STORAGE = "#e8ecf1"
VIEW = "#9ecae9"
FOCUS = "#e69f00"
GRADIENT = "#d55e00"
SAVED = "#cc79a7"
HOST = "#0072b2"
DEVICE = "#009e73"
INK = "#1b1f24"
HATCH = "#b9c2cd"

# JupyterLab sets the variable for each of its themes; an image cannot read it and takes the grey after the comma.
FREE = "var(--jp-ui-font-color2,#767676)"

FONT = "DejaVu Sans Mono,Menlo,Consolas,Liberation Mono,monospace"
# The width of one character by the font's size. The widest of these fonts (DejaVu Sans Mono, Menlo) has 0.602.
ADVANCE = 0.61
VALUE_SIZE = 14
LABEL_SIZE = 12
SMALL_SIZE = 11

SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def text_width(content: str, size: float) -> float:
    """Return the width of a line of text, in pixels."""
    return len(content) * ADVANCE * size


def coordinate(x: float) -> str:
    """Return a number with at most two decimals, and none when it is whole."""
    return f"{x:.2f}".rstrip("0").rstrip(".") if x != int(x) else str(int(x))


def attributes(given: dict[str, object]) -> str:
    """Return XML attributes: `stroke_width=2` becomes ` stroke-width="2"`. None leaves one out."""
    written = ""
    for name, value in given.items():
        if value is not None:
            shown = escape(value) if isinstance(value, str) else coordinate(value)
            written += f' {name.replace("_", "-")}="{shown}"'
    return written


def element(name: str, content: str = "", **given: object) -> str:
    """Return one SVG element. `content` must be XML already."""
    return f"<{name}{attributes(given)}>{content}</{name}>" if content else f"<{name}{attributes(given)}/>"


def group(parts: list[str], **given: object) -> str:
    """Return the parts in one `<g>`, which hands its attributes down to them; nothing when there are no parts."""
    return element("g", "\n" + "\n".join(parts) + "\n", **given) if parts else ""


def text(x: float, y: float, content: str, **given: object) -> str:
    """Return one line of text whose baseline is at `y`. `content` is plain text and is escaped here."""
    return element("text", escape(content), x=coordinate(x), y=coordinate(y), **given)


def rect(x: float, y: float, width: float, height: float, **given: object) -> str:
    """Return a rectangle."""
    return element(
        "rect", x=coordinate(x), y=coordinate(y), width=coordinate(width), height=coordinate(height), **given
    )


def free(parts: list[str], **given: object) -> str:
    """Return text that stands on the page itself, in the page's grey."""
    return group(parts, style=f"fill:{FREE}", font_size=LABEL_SIZE, **given)


def picture(width: float, height: float, sentence: str, parts: list[str]) -> str:
    """Return a whole `<svg>`. `sentence` is its title: what a screen reader says, and what hovering shows."""
    w, h = coordinate(float(round(width + 0.5))), coordinate(float(round(height + 0.5)))
    body = "\n".join(part for part in parts if part)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{w}" height="{h}" viewBox="0 0 {w} {h}"'
        f' font-family="{FONT}">\n<title>{escape(sentence)}</title>\n{body}\n</svg>'
    )


def short_number(value: object) -> str:
    """Return a value in about eight characters (a complex number: twice as many), as a small cell can hold it.

    Whole numbers of up to seven digits are exact. Floats have four significant digits and, as PyTorch prints them,
    at most four decimals; one that is a whole number ends with a point. Very large and very small ones are written
    `-1.23e-5`. Text (raw bytes of a type without numbers) is kept.
    """
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return str(value) if -(10**7) < value < 10**7 else _exponent(f"{value:.2e}")
    if isinstance(value, complex):
        real, imaginary = _float(value.real), _float(value.imag)
        return f"{real.rstrip('.')}{'' if imaginary.startswith('-') else '+'}{imaginary.rstrip('.')}j"
    raise TypeError(f"short_number takes a number or text, and {kind_of(value)} came")


def _float(value: float) -> str:
    if value == 0:
        return "-0." if str(value)[0] == "-" else "0."
    if abs(value) >= 9999.5 or abs(value) < 1e-3:  # infinity, too
        return _exponent(f"{value:.2e}")
    digits = f"{value:.4g}"
    if "." not in digits:
        return digits if digits == "nan" else digits + "."
    return digits if abs(value) >= 0.1 else f"{value:.4f}".rstrip("0")


def _exponent(digits: str) -> str:
    """Shorten `1.500e+07` to `1.5e7` and `1e-07` to `1e-7`."""
    mantissa, e, power = digits.partition("e")
    if not e:
        return digits
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(power)}"


def short_count(count: int) -> str:
    """Return a count as short as a badge must be: `12`, `1,024`, `10⁹`, `3.2×10⁷`."""
    if count < 100_000:
        return f"{count:,}"
    mantissa, _, power = f"{count:.1e}".partition("e")
    power = "10" + str(int(power)).translate(SUPERSCRIPT)
    return power if mantissa == "1.0" else f"{mantissa}×{power}"
