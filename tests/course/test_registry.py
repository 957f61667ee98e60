"""The questions of the real chapters."""

from __future__ import annotations

from collections import Counter

from helpers.course.questions import Exercise, Prediction, chapters, find_question, questions


def test_every_id_and_every_number_is_used_once():
    for kind in ("PREDICTIONS", "EXERCISES"):
        ids = Counter(question_id for chapter in chapters() for question_id in questions(chapter, kind))
        assert ids
        assert not [question_id for question_id, times in ids.items() if times > 1]
    exercises = [exercise for chapter in chapters() for exercise in questions(chapter, "EXERCISES").values()]
    numbers = Counter(exercise.number for exercise in exercises)
    assert not [number for number, times in numbers.items() if times > 1]


def test_every_question_is_found_by_its_id_and_is_of_its_kind():
    for chapter in chapters():
        for question_id, prediction in questions(chapter, "PREDICTIONS").items():
            assert find_question("PREDICTIONS", question_id) is prediction
            assert isinstance(prediction, Prediction)
            assert all(because.strip().endswith((".", "?")) for because in prediction.because.values())
        for question_id, exercise in questions(chapter, "EXERCISES").items():
            assert find_question("EXERCISES", question_id) is exercise
            assert isinstance(exercise, Exercise)
            assert exercise.number.split(".")[0] == str(int(chapter.removeprefix("chapter_")))
