import os

from slack_bolt import App
from slack_bolt.adapter.socket_mode import SocketModeHandler

app = App(token=os.environ["SLACK_BOT_TOKEN"])


@app.event("app_mention")
def answer(event, say):
    say(f"hello <@{event['user']}>", thread_ts=event["ts"])


SocketModeHandler(app, os.environ["SLACK_APP_TOKEN"]).start()
