import bolt from '@slack/bolt';

const app = new bolt.App({ token: process.env.SLACK_BOT_TOKEN, appToken: process.env.SLACK_APP_TOKEN, socketMode: true });
app.event('app_mention', async ({ event, say }) => {
  await say({ text: `hello <@${event.user}>`, thread_ts: event.ts });
});
await app.start();
