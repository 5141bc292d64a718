"""Schedules that fire, with the Python client: whoever has one waits for the next minute."""

from qstash.schedule import ScheduleState

from kit import NEVER, Sink, buried, client, run, until


def a_schedule_fires_with_the_minute():
    sink = Sink()
    sink.replies("/failing", NEVER)
    create = lambda path, **more: client.schedule.create(destination=sink.url(path), cron="* * * * *", **more)
    fine, failing, paused = create("/fine", body="tick"), create("/failing"), create("/paused")
    client.schedule.pause(paused)
    heard = sink.hears("/fine", patience=130)[0]
    assert (heard.body, heard.headers["Upstash-Schedule-Id"]) == ("tick", fine)
    assert client.message.get(heard.id).schedule_id == fine
    died = sink.hears("/failing")[0]
    assert buried(died.id).schedule_id == failing

    def states(schedule_id, message_id, state):
        last = client.schedule.get(schedule_id).last_schedule_states or {}
        return last.get(message_id) in (state, state.value)

    until("a success", lambda: states(fine, heard.id, ScheduleState.SUCCESS))
    until("a failure", lambda: states(failing, died.id, ScheduleState.FAIL))
    assert client.schedule.get(fine).next_schedule_time > client.schedule.get(fine).last_schedule_time
    assert sink.at("/paused") == []


run(a_schedule_fires_with_the_minute)
