"""A chapter as a reader gets it: what would tell the answer of a prediction is not there before its cell is run.

The course's own notebooks hold the output of every cell, to be read on the web and compared by the tests. In the
workbook the cells between a prediction and the end of its section come without theirs.
"""

from __future__ import annotations

import json
import re

ASKS = re.compile(r"^predict\(", re.MULTILINE)
HEADING = re.compile(r"#{1,3} ")


def unanswered(name: str, data: bytes) -> bytes:
    """Return a file of the course without the outputs that follow a prediction; what is no notebook as it is."""
    try:
        notebook = json.loads(data) if name.endswith(".ipynb") else {}
    except ValueError:
        return data
    asked = changed = False
    for cell in notebook.get("cells", ()):
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            if asked and (cell["outputs"] or cell["execution_count"] is not None):
                cell["outputs"], cell["execution_count"], changed = [], None, True
            asked = asked or bool(ASKS.search(source))
        elif HEADING.match(source):
            asked = False
    if not changed:
        return data
    return (json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
