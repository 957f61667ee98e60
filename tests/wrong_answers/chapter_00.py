"""Typical wrong answers of chapter 00, each with a pattern for the message it must get."""

WRONG = {
    "ex-row-slots": [
        ("slots = [2]", "number of the row"),
        ("slots = [4, 5, 6, 7]", "counted from 0"),
        ("slots = [0, 4, 8]", "last row of the grid"),
        ("slots = [18, 19, 20, 21]", "numbers that the row finds"),
        ("slots = x[2]", "numbers that the row finds"),
        ("slots = None", "None came, and a list of numbers is wanted"),
        ('slots = "8 9 10 11"', "'8 9 10 11' is a str, and a list of numbers is wanted"),
    ],
    "ex-first-bad": [
        (
            "def first_bad(losses):\n    return losses.index(math.nan) if math.nan in losses else 0",
            "None is wanted|infinite",
        ),
        ("def first_bad(losses):\n    return next((i for i, l in enumerate(losses) if l != l), None)", "infinite"),
        (
            "def first_bad(losses):\n    return next((i for i, l in enumerate(losses) if l == float('nan')), None)",
            "isfinite",
        ),
        (
            "def first_bad(losses):\n    return next((i + 1 for i, l in enumerate(losses) if not math.isfinite(l)), None)",
            "gave 3, and 2 is wanted",
        ),
        ("def first_bad(losses):\n    print(losses.index(max(losses)))", "or only print it"),
        ("def first_bad(losses):\n    return 'none'", "a whole number, or None is wanted"),
        (
            "def first_bad(losses):\n    return next((i for i, l in enumerate(losses) if not math.isfinite(l)), 0)",
            "all are finite there, so None is wanted",
        ),
        (
            "def first_bad(losses):\n    return next((i for i, l in enumerate(losses) if not abs(l) < 10), None)",
            r"the loss there is 1e\+30, and that is finite",
        ),
        (
            "def first_bad(losses):\n    losses.reverse()\n    return 0 if not math.isfinite(losses[0]) else None",
            r"first_bad\(\[1.0, 0.5, nan, nan\]\) gave 0: the loss there is 1.0, and that is finite",
        ),
    ],
    "ex-which-layer": [
        ('layers = ["graph", "graph", "kernel"]', "Answer 1 .* block of memory"),
        ('layers = ["storage", "storage", "kernel"]', "Answer 2 .* graph's work"),
        ('layers = ["storage", "graph", "graph"]', "Answer 3 .* this backend"),
        ('layers = ["storage", "graph", "device"]', "The words are, for the storage"),
        ('layers = ["storage", "autograd", "autograd"]', "Answer 3 is not 'autograd'"),
        ('layers = ["dispatcher", "graph", "kernel"]', "Answer 1 .* block of memory"),
        ('layers = "storage"', "list of three words"),
    ],
}
