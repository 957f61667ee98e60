"""What stands behind the make verbs; run it as `python tools/course.py VERB`."""
