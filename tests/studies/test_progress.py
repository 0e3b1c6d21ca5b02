import io

from rich.console import Console

from medattn.studies.progress import StudyProgress


def test_a_log_gets_one_line_at_the_start_and_one_at_the_end_of_each_run():
    file = io.StringIO()
    with StudyProgress(Console(file=file, width=100), runs=2, units=20) as display:
        for units in (1, 5, 9):
            display.update("a", 10, units, f"step {units}")
        display.finish("a", 10, "finished")
        display.update("a", 10, 10, "late")
        display.finish("b", 10, "failed, MemoryError")
    assert file.getvalue().splitlines() == ["a: started", "a: finished (1 of 2)", "b: failed, MemoryError (2 of 2)"]


def test_late_news_does_not_bring_back_the_bar_of_a_run_that_ended():
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with StudyProgress(console, runs=1, units=10) as display:
        display.update("a", 10, 4, "step 4")
        assert [task.description for task in display._display.tasks] == ["all runs", "a"]
        display.finish("a", 10, "finished")
        display.update("a", 10, 9, "late")
        assert [task.description for task in display._display.tasks] == ["all runs"]
        assert display._display.tasks[0].finished


def test_what_was_done_before_a_kill_does_not_count_as_speed():
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with StudyProgress(console, runs=1, units=100) as display:
        display.update("a", 100, 61, "continued")
        whole = display._display.tasks[0]
        assert (whole.completed, whole.total) == (1, 40)
        display.finish("a", 100, "finished")
        assert (whole.completed, whole.total) == (40, 40)
