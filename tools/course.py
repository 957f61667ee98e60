"""The course's one command: `make VERB`, or without make `python tools/course.py VERB`.

Only the standard library is used here and in what this file imports: it runs before anything is
installed. This file itself keeps to syntax that every Python since 3.6 (2.7 even) can read, so that an
old one can say in one sentence what is missing. The rest is in the modules beside it.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST, NEWEST = (3, 11), (3, 13)

HELP = """\
make lab       set up what is missing and open the course in JupyterLab
make test      all tests and all notebooks        DEVICE=cuda  ARGS="-k layout"
make setup     only the set-up (.venv)            TORCH=cpu  PYTHON=python3.12
make reset     a fresh copy of one chapter        CHAPTER=01   (yours is kept beside it)
make refresh   run the notebooks and store their outputs
make lint      check the style of the code
make bench     measure speed against the targets
make help      this list

Without make: python tools/course.py lab   (on Windows: py -3.12 tools\\course.py lab)
"""


def main(argv):
    verb = argv[0] if argv else "help"
    if verb in ("help", "-h", "--help"):
        sys.stdout.write(HELP)
        return 0
    if not OLDEST <= tuple(sys.version_info[:2]) <= NEWEST:
        sys.stderr.write(
            "The course needs Python 3.11, 3.12 or 3.13, and this is %d.%d.%d (%s): install one of them "
            "(python.org, conda, or your system's packages), or name one that you have, such as %s.\n"
            % (sys.version_info[:3] + (sys.executable, _name_one(verb)))
        )
        return 1
    sys.path[0] = ROOT
    from tools import verbs

    return verbs.run(verb, argv[1:])


def _name_one(verb):
    if os.name == "nt":
        return "`py -3.12 tools\\course.py %s`" % verb
    return "`make %s PYTHON=/path/to/python3.12`" % verb


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
