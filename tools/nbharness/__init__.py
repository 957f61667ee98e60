"""What runs notebooks in this project: strict nbval with a few cures, shared by tests and by `make refresh`.

- `kernel`      one kernel for one notebook, started so that it behaves as under JupyterLab
- `cells`       the pytest collector and item that stand in for nbval's
- `differences` says in one sentence what kind of difference a comparison found
- `run`         runs notebooks in a pytest of their own and returns what every cell did
- `normalise`   the one form in which notebooks are stored
- `hygiene`, `mutation`, `ledger`, `exercises`   the tests of stored notebooks
- `build`       small notebooks for tests
"""

import sys

# nbformat's validator loads this grammar for a format that no notebook uses; it takes a second of every start.
sys.modules.setdefault("rfc3987_syntax", None)
