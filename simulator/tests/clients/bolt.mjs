// Bot with Bolt for JavaScript, in Socket Mode or with a request URL. A mention names a step; each step prints one JSON
// line.
import bolt from '@slack/bolt';

const { App, Assistant, HTTPReceiver, LogLevel, SocketModeReceiver } = bolt;
const { SLACK_API_URL, SLACK_BOT_TOKEN, SLACK_APP_TOKEN, SLACK_SIGNING_SECRET } = process.env;
const clientOptions = { slackApiUrl: SLACK_API_URL };
const logLevel = LogLevel.WARN;

const receiver = SLACK_APP_TOKEN
  // The ping timeout is short, since Bolt waits as long before it reconnects.
  ? new SocketModeReceiver({ appToken: SLACK_APP_TOKEN, clientPingTimeout: 1000, logLevel, installerOptions: { clientOptions } })
  : new HTTPReceiver({ signingSecret: SLACK_SIGNING_SECRET, logLevel });
const app = new App({ token: SLACK_BOT_TOKEN, logLevel, receiver, clientOptions });

const print = (line) => console.log(JSON.stringify(line));
const explain = (error) => error.data?.error ?? error.stack ?? String(error);

async function runStep(step, work) {
  try {
    print({ step, ...(await work()) });
  } catch (error) {
    print({ step, error: explain(error) });
  }
}

// Awaits a call; returns the error code with which Slack refuses it, or 'accepted'.
async function catchCode(call) {
  try {
    await call;
    return 'accepted';
  } catch (error) {
    return error.data?.error ?? String(error);
  }
}

const plain = (text) => ({ type: 'plain_text', text });
const section = (text) => ({ type: 'section', text: { type: 'mrkdwn', text } });
const button = (action_id, value = action_id) => ({ type: 'button', action_id, value, text: plain(action_id) });
const actions = (...elements) => ({ type: 'actions', elements });
const option = (value) => ({ text: plain(value), value });
const input = (block_id, element) => ({ type: 'input', block_id, label: plain(block_id), element });
const modal = (callback_id, blocks, options = {}) => ({
  type: 'modal', callback_id, title: plain(callback_id), submit: plain('Send'), close: plain('Cancel'), blocks, ...options,
});

const feedback = {
  type: 'context_actions',
  elements: [{
    type: 'feedback_buttons',
    action_id: 'feedback',
    positive_button: { text: plain('Good'), value: 'good' },
    negative_button: { text: plain('Bad'), value: 'bad' },
  }],
};

const steps = {
  async mention({ event, context, say }) {
    const answer = await say({ text: `hello <@${event.user}>`, thread_ts: event.ts });
    return {
      event, isMe: context.botUserId, isDone: answer.ok, blocks: event.blocks?.map((block) => block.type),
    };
  },

  async metadata({ event, client }) {
    const { channel } = event;
    const metadata = { event_type: 'asked', event_payload: { by: event.user } };
    const { ts } = await client.chat.postMessage({ channel, text: 'with metadata', metadata });
    const read = (options) => client.conversations.history({ channel, latest: ts, inclusive: true, limit: 1, ...options });
    const { messages: [complete] } = await read({ include_all_metadata: true });
    const { messages: [short] } = await read({});
    return { complete: complete.metadata.event_payload.by === event.user, short: short.metadata?.event_payload ?? null };
  },

  async attachments({ event, client }) {
    const { channel } = event;
    const fields = [{ title: 'Branch', value: 'main', short: true }];
    const attachments = [{ color: '#36a64f', fallback: 'passed', title: 'Build', text: 'passed', fields }];
    const { ts, message } = await client.chat.postMessage({ channel, attachments });
    await client.chat.update({ channel, ts, text: 'Build 2', attachments: [] });
    return {
      fallback: message.attachments[0].fallback,
      broken: await catchCode(client.chat.postMessage({ channel, attachments: [{}] })),
    };
  },

  async authors({ event, client }) {
    const { channel } = event;
    const { message } = await client.chat.postMessage({ channel, text: 'beep', username: 'Robot', icon_emoji: ':robot_face:' });
    return { username: message.username, icons: message.icons };
  },

  async broadcast({ event, client }) {
    const { channel, ts: thread_ts } = event;
    await client.chat.postMessage({ channel, thread_ts, text: 'quiet' });
    await client.chat.postMessage({ channel, thread_ts, text: 'loud', reply_broadcast: true });
    const { messages } = await client.conversations.history({ channel });
    return { texts: messages.map(({ text }) => text), subtype: messages[0].subtype };
  },

  async edits({ event, client }) {
    const { channel } = event;
    const { ts } = await client.chat.postMessage({ channel, text: ':hourglass:' });
    for (let count = 1; count <= 5; count += 1) await client.chat.update({ channel, ts, text: `so far ${count}` });
    const blocks = [
      { type: 'header', text: plain('Answer') },
      section('*done*'),
      { type: 'divider' },
      { type: 'context', elements: [{ type: 'mrkdwn', text: 'took 1 s' }] },
      { type: 'image', image_url: 'https://a.example/a.png', alt_text: 'a chart' },
    ];
    const { message } = await client.chat.update({ channel, ts, text: 'done', blocks });
    return { types: message.blocks.map((block) => block.type) };
  },

  async delete({ event, client }) {
    const { channel } = event;
    const { ts } = await client.chat.postMessage({ channel, text: 'oops' });
    await client.chat.delete({ channel, ts });
    return { deletedTwice: await catchCode(client.chat.delete({ channel, ts })) };
  },

  async stream({ event, sayStream }) {
    const stream = sayStream({ thread_ts: event.ts, buffer_size: 4 });
    await stream.append({ chunks: [{ type: 'task_update', id: '1', title: 'Search', status: 'in_progress' }] });
    await stream.append({ markdown_text: '**bold** and ' });
    await stream.append({ chunks: [{ type: 'task_update', id: '1', title: 'Search', status: 'complete' }] });
    const stopped = await stream.stop({ markdown_text: 'done', blocks: [feedback] });
    return { stopped, late: await stream.append({ markdown_text: 'late' }).catch((error) => error.message) };
  },

  async streamErrors({ event, client }) {
    const { channel, ts: thread_ts } = event;
    const recipient = { recipient_user_id: event.user, recipient_team_id: event.team };
    const { ts } = await client.chat.startStream({ channel, thread_ts, markdown_text: 'a', ...recipient });
    const tooEarly = await catchCode(client.chat.update({ channel, ts, text: 'b' }));
    await client.chat.stopStream({ channel, ts });
    return {
      tooEarly,
      tooLate: await catchCode(client.chat.appendStream({ channel, ts, markdown_text: 'c' })),
      noRecipient: await catchCode(client.chat.startStream({ channel, thread_ts, markdown_text: 'd' })),
    };
  },

  async buttons({ event, client }) {
    const blocks = [actions(button('replace'), button('whisper'), button('vanish')), feedback];
    await client.chat.postMessage({ channel: event.channel, text: 'press', blocks });
  },

  async selects({ event, client }) {
    const blocks = [
      actions(
        { type: 'static_select', action_id: 'static', options: [option('red'), option('blue')] },
        { type: 'users_select', action_id: 'user' },
        { type: 'conversations_select', action_id: 'conversation' },
        { type: 'overflow', action_id: 'overflow', options: [option('more'), option('less')] },
        { type: 'datepicker', action_id: 'date' },
      ),
      { ...section('several'), accessory: { type: 'multi_static_select', action_id: 'multi', options: [option('one'), option('two')] } },
      actions({ type: 'checkboxes', action_id: 'checks', options: [option('a'), option('b')] }),
      actions({ type: 'radio_buttons', action_id: 'radio', options: [option('x'), option('y')] }),
    ];
    await client.chat.postMessage({ channel: event.channel, text: 'choose', blocks });
  },

  async modals({ event, client }) {
    const blocks = [actions(button('open'))];
    await client.chat.postMessage({ channel: event.channel, text: 'open', blocks });
  },

  async ephemeral({ event, client }) {
    const { channel, user } = event;
    const { message_ts } = await client.chat.postEphemeral({ channel, user, text: 'psst', blocks: [section('psst')] });
    const unknown = await catchCode(client.chat.postEphemeral({ channel, user: 'U0NOBODY00', text: 'psst' }));
    return { message_ts, unknown };
  },

  async upload({ event, client }) {
    const { channel: channel_id, ts: thread_ts } = event;
    const uploaded = await client.files.uploadV2({
      channel_id,
      thread_ts,
      initial_comment: 'two files',
      file_uploads: [
        { filename: 'a.md', content: '# A' },
        { filename: 'b.bin', file: Buffer.from([0, 255, 10]), alt_text: 'bytes' },
      ],
    });
    const [{ files }] = uploaded.files;
    const { file } = await client.files.info({ file: files[1].id });
    const download = (headers) => fetch(file.url_private, { headers });
    const bytes = await (await download({ Authorization: `Bearer ${SLACK_BOT_TOKEN}` })).arrayBuffer();
    const anonymous = await download({});
    const { files: listed } = await client.files.list({ channel: channel_id });
    await client.files.delete({ file: files[0].id });
    return {
      listed: listed.map(({ name }) => name).sort(),
      shared: Object.keys(file.shares.public),
      names: files.map(({ name }) => name),
      bytes: [...Buffer.from(bytes)],
      anonymous: anonymous.headers.get('content-type'),
      deleted: await catchCode(client.files.info({ file: files[0].id })),
    };
  },

  async direct({ event, client }) {
    const { channel } = await client.conversations.open({ users: event.user });
    const { channel: about } = await client.conversations.info({ channel: channel.id });
    await client.chat.postMessage({ channel: channel.id, text: 'in private' });
    return { about };
  },

  async threads({ event, client }) {
    const { channel, ts: thread_ts } = event;
    const replies = [];
    for (const text of ['1', '2', '3']) replies.push(await client.chat.postMessage({ channel, thread_ts, text }));
    const pages = [];
    for await (const page of client.paginate('conversations.replies', { channel, ts: thread_ts, limit: 2 })) {
      pages.push(page.messages.map(({ text }) => text));
    }
    const { permalink } = await client.chat.getPermalink({ channel, message_ts: replies[0].ts });
    return {
      pages,
      permalink,
      nowhere: await catchCode(client.conversations.replies({ channel, ts: '1.000001' })),
      deeper: await catchCode(client.chat.postMessage({ channel, thread_ts: replies[0].ts, text: 'deeper' })),
    };
  },

  async history({ event, client }) {
    const pages = [];
    for await (const page of client.paginate('conversations.history', { channel: event.channel, limit: 3 })) {
      pages.push(page.messages.map(({ text }) => text));
    }
    const { messages } = await client.conversations.history({
      channel: event.channel, latest: event.ts, inclusive: true, limit: 1,
    });
    return { pages, latest: messages[0].ts === event.ts };
  },

  async reactions({ event, client }) {
    const { channel, ts: timestamp } = event;
    const target = { channel, timestamp, name: 'eyes' };
    await client.reactions.add(target);
    const addedTwice = await catchCode(client.reactions.add(target));
    await client.reactions.remove(target);
    const removedTwice = await catchCode(client.reactions.remove(target));
    await client.reactions.add({ ...target, name: 'thumbsup' });
    const { message } = await client.reactions.get({ channel, timestamp });
    const { items } = await client.reactions.list({ limit: 1 });
    const badTimestamp = await catchCode(client.reactions.get({ channel, timestamp: 'yesterday' }));
    const names = message.reactions.map(({ name }) => name);
    return { addedTwice, removedTwice, names, listed: items[0].message.ts === timestamp, badTimestamp, unknown: await catchCode(client.reactions.add({ ...target, name: 'no_such_emoji' })) };
  },

  async people({ event, client }) {
    const { user } = await client.users.info({ user: event.user });
    const { members } = await client.users.list({});
    const { channels } = await client.conversations.list({ types: 'public_channel' });
    const { team } = await client.team.info();
    return {
      name: user.name,
      names: members.map(({ name }) => name),
      channels: channels.map(({ name }) => name),
      team: team.id,
    };
  },

  async lookups({ event, client }) {
    const { channel, user } = event;
    const { bot_id } = await client.auth.test();
    const { bot } = await client.bots.info({ bot: bot_id });
    const { user: byEmail } = await client.users.lookupByEmail({ email: 'ada@example.com' });
    const { profile } = await client.users.profile.get({ user });
    const { channels } = await client.users.conversations({ user, types: 'public_channel' });
    const { warning } = await client.conversations.join({ channel });
    const { emoji } = await client.emoji.list();
    const { args } = await client.api.test({ foo: 'bar' });
    const pages = [];
    for await (const page of client.paginate('conversations.members', { channel, limit: 3 })) pages.push(page.members);
    return {
      bot: bot.user_id, byEmail: byEmail.id, picture: profile.image_72, warning, emoji, args, pages,
      isMember: channels.some(({ id }) => id === channel),
      noUser: await catchCode(client.users.lookupByEmail({ email: 'nobody@example.com' })),
      noBot: await catchCode(client.bots.info({ bot: 'B0NOTHING00' })),
    };
  },

  async pins({ event, client }) {
    const { channel, ts: timestamp } = event;
    await client.pins.add({ channel, timestamp });
    const addedTwice = await catchCode(client.pins.add({ channel, timestamp }));
    const { items } = await client.pins.list({ channel });
    await client.pins.remove({ channel, timestamp });
    const removedTwice = await catchCode(client.pins.remove({ channel, timestamp }));
    return { addedTwice, removedTwice, pinned: items.map(({ message }) => message.ts) };
  },

  async schedule({ event, client }) {
    const { channel } = event;
    const schedule = (seconds, text) => client.chat.scheduleMessage({
      channel, text, post_at: Math.floor(Date.now() / 1000) + seconds,
    });
    const { scheduled_message_id } = await schedule(3600, 'never');
    await schedule(2, 'soon');
    const { scheduled_messages: listed } = await client.chat.scheduledMessages.list({ channel });
    const remove = () => client.chat.deleteScheduledMessage({ channel, scheduled_message_id });
    await remove();
    return {
      listed: listed.map(({ text }) => text), deletedTwice: await catchCode(remove()), past: await catchCode(schedule(-9, 'past')),
    };
  },

  async meMessage({ event, client }) {
    return client.chat.meMessage({ channel: event.channel, text: 'waves' });
  },

  async headers({ event, client }) {
    const { response_metadata } = await client.auth.test();
    const headers = { Authorization: `Bearer ${SLACK_BOT_TOKEN}`, 'Content-Type': 'application/json; charset=utf-8' };
    const body = JSON.stringify({ channel: event.channel, ts: event.ts });
    const response = await fetch(`${SLACK_API_URL}conversations.replies`, { method: 'POST', headers, body });
    return {
      scopes: response_metadata.scopes,
      code: (await response.json()).error,
      failure: response.headers.get('x-slack-failure'),
      id: response.headers.get('x-slack-req-id'),
    };
  },

  async errors({ event, client }) {
    const { channel, ts } = event;
    const post = (message) => catchCode(client.chat.postEphemeral({ channel, user: event.user, text: 'x', ...message }));
    const { ts: own } = await client.chat.postMessage({ channel, text: 'x' });
    const [image, id] = [{ type: 'image', image_url: 'https://a.example/a.png' }, { block_id: 'same' }];
    return {
      foreign: await catchCode(client.chat.update({ channel, ts, text: 'x' })),
      nowhere: await catchCode(client.chat.postMessage({ channel: 'C0NOWHERE0', text: 'x' })),
      nobody: await catchCode(client.users.info({ user: 'U0NOBODY00' })),
      longUpdate: await catchCode(client.chat.update({ channel, ts: own, text: 'x'.repeat(4001) })),
      empty: await catchCode(client.chat.postMessage({ channel })),
      unknownBlock: await post({ blocks: [{ type: 'marquee' }] }),
      unknownText: await post({ blocks: [{ type: 'section', text: { type: 'html', text: 'x' } }] }),
      noAltText: await post({ blocks: [image] }),
      sameIds: await post({ blocks: [{ ...section('a'), ...id }, { ...section('b'), ...id }] }),
      tooLong: await post({ blocks: [section('x'.repeat(3001))] }),
      tooMany: await post({ blocks: Array(51).fill(section('x')) }),
      mrkdwnButton: await post({ blocks: [actions({ ...button('go'), text: { type: 'mrkdwn', text: 'go' } })] }),
      unknownKey: await post({ blocks: [{ ...section('a'), colour: 'red' }] }),
      sameActions: await post({ blocks: [actions(button('go'), button('go'))] }),
      truncated: (await client.chat.postMessage({ channel, text: 'x'.repeat(40001) })).warning,
      unknownMethod: await catchCode(client.apiCall('chat.shout', { channel })),
    };
  },

  async slowDown({ event, client }) {
    const seconds = [];
    const listen = (delay) => seconds.push(delay);
    client.on('rate_limited', listen);
    const { ok } = await client.chat.postMessage({ channel: event.channel, text: 'at last' });
    client.off('rate_limited', listen);
    return { ok, seconds };
  },

  async retry({ event, client }) {
    const { ok } = await client.chat.postMessage({ channel: event.channel, text: 'again' });
    return { ok };
  },

  async reconnected() {
    return {};
  },

  async refreshed() {
    return {};
  },

  async thawed() {
    return {};
  },

  async session({ event, client }) {
    const thread = { channel_id: event.channel, thread_ts: event.ts };
    await client.apiCall('agents.sessions.setStatus', { ...thread, status: 'processing', title: 'Working' });
    const renamed = await client.apiCall('agents.sessions.rename', { ...thread, title: 'Done' });
    await client.apiCall('agents.sessions.setStatus', { ...thread, status: 'closed' });
    return { title: renamed.title };
  },
};

app.assistant(new Assistant({
  threadStarted: ({ say, setSuggestedPrompts, getThreadContext }) => runStep('threadStarted', async () => {
    await say('How can I help?');
    await setSuggestedPrompts({ title: 'Try', prompts: [{ title: 'Hello', message: 'Say hello' }] });
    return { context: (await getThreadContext()).channel_id };
  }),
  threadContextChanged: ({ saveThreadContext, event }) => runStep('contextChanged', async () => {
    await saveThreadContext();
    return { context: event.assistant_thread.context.channel_id };
  }),
  userMessage: ({ message, say, setStatus, setTitle, getThreadContext }) => runStep('userMessage', async () => {
    await setTitle('Reasons');
    await setStatus({ status: 'is thinking...', loading_messages: ['Reading', 'Writing'] });
    const { channel_id: context } = await getThreadContext();
    if (message.text === 'why?') await say('Because.');
    return { text: message.text, context };
  }),
}));

app.use(async ({ body, context, next }) => {
  if (context.retryNum) print({ step: 'retry of event', type: body.event.type, count: context.retryNum, reason: context.retryReason });
  await next();
});

app.event('app_mention', async (args) => {
  const [, step] = args.event.text.split(' ');
  await runStep(step, () => steps[step](args));
});

app.message(async ({ message, say, client }) => {
  if (message.channel_type === 'im' && message.user && !message.bot_id && !message.subtype) {
    await runStep('directMessage', async () => {
      await say(`you wrote ${message.text}`);
      return { message };
    });
  }
  if (message.subtype === 'file_share' && !message.bot_id) {
    await runStep('fileShare', async () => {
      const [file] = message.files;
      const response = await fetch(file.url_private_download, { headers: { Authorization: `Bearer ${SLACK_BOT_TOKEN}` } });
      return { name: file.name, mimetype: file.mimetype, text: await response.text() };
    });
  }
});

app.event('message', async ({ event, context }) => {
  const { subtype, message, previous_message: previous, deleted_ts } = event;
  const isByMe = (message ?? previous)?.user === context.botUserId;
  if (isByMe) return;
  if (subtype === 'message_changed') {
    print({ step: 'changed', text: message.text, before: previous.text });
  } else if (subtype === 'bot_message') {
    print({ step: 'botMessage', text: event.text, username: event.username, bot: event.bot_id });
  } else if (subtype === 'message_deleted') {
    print({ step: 'deleted', ts: deleted_ts, before: previous?.text });
  }
});

for (const type of ['reaction_added', 'reaction_removed', 'member_joined_channel', 'file_shared', 'pin_added']) {
  app.event(type, async ({ event }) => {
    const about = event.file_id ?? event.item?.message?.ts ?? event.item?.ts ?? event.channel;
    print({ step: `${type} ${about}`, event });
  });
}

app.event('app_home_opened', async ({ event, client }) => {
  if (event.tab !== 'home') return;
  await runStep('home', async () => {
    const view = { type: 'home', blocks: [section(`hello <@${event.user}>`), actions(button('greet'))] };
    const published = await client.views.publish({ user_id: event.user, view });
    return { type: published.view.type, wasPublished: event.view?.id === published.view.id };
  });
});

app.action('greet', async ({ ack, body }) => {
  await ack();
  print({ step: 'greet', container: body.container.type, viewType: body.view.type });
});

app.action('replace', async ({ ack, action, respond, body }) => {
  await ack();
  await respond({ replace_original: true, text: 'replaced', blocks: body.message.blocks });
  print({ step: 'replace', value: action.value });
});

app.action('whisper', async ({ ack, respond }) => {
  await ack();
  await respond({ replace_original: false, response_type: 'ephemeral', text: 'psst' });
  print({ step: 'whisper' });
});

app.action('vanish', async ({ ack, respond }) => {
  await ack();
  await respond({ delete_original: true });
  print({ step: 'vanish' });
});

app.action('feedback', async ({ ack, action }) => {
  await ack();
  print({ step: 'feedback', value: action.value });
});

app.action(/^(static|user|conversation|overflow|date|multi|checks|radio)$/, async ({ ack, action, body }) => {
  await ack();
  print({ step: action.action_id, action, values: body.state.values });
});

app.action('open', async ({ ack, body, client }) => {
  await ack();
  await runStep('open', async () => {
    const view = modal('ask', [
      input('question', { type: 'plain_text_input', action_id: 'text', multiline: true }),
      input('colour', { type: 'static_select', action_id: 'colour', options: [option('red'), option('blue')] }),
      actions(button('push'), button('refresh')),
    ], { notify_on_close: true, private_metadata: 'some data' });
    const { view: opened } = await client.views.open({ trigger_id: body.trigger_id, view });
    return {
      root: opened.root_view_id === opened.id,
      openedTwice: await catchCode(client.views.open({ trigger_id: body.trigger_id, view })),
    };
  });
});

app.action('refresh', async ({ ack, body, client }) => {
  await ack();
  await runStep('refresh', async () => {
    const { title, submit, close, callback_id, notify_on_close, private_metadata, blocks } = body.view;
    const view = { type: 'modal', title, submit, close, callback_id, notify_on_close, private_metadata };
    view.blocks = [section('refreshed'), ...blocks];
    const { id: view_id, hash } = body.view;
    await client.views.update({ view_id, hash, view });
    return { stale: await catchCode(client.views.update({ view_id, hash, view })) };
  });
});

app.action('push', async ({ ack, body, client }) => {
  await ack();
  await runStep('push', async () => {
    const view = modal('details', [input('detail', { type: 'plain_text_input', action_id: 'detail' })], { notify_on_close: true });
    const { view: pushed } = await client.views.push({ trigger_id: body.trigger_id, view });
    return { previous: pushed.previous_view_id === body.view.id, root: pushed.root_view_id === body.view.id };
  });
});

// The text of the question chooses the response to a submission.
app.view('ask', async ({ ack, view, body }) => {
  const { question, colour } = view.state.values;
  const text = question.text.value;
  if (text === 'bad') await ack({ response_action: 'errors', errors: { question: 'Ask nicely' } });
  else if (text === 'update') await ack({ response_action: 'update', view: modal('sure', [section('Sure?')]) });
  else if (text === 'push') await ack({ response_action: 'push', view: modal('sure', [section('Sure?')]) });
  else if (text === 'clear') await ack({ response_action: 'clear' });
  else await ack();
  print({
    step: 'submit', text, colour: colour.colour.selected_option.value, metadata: view.private_metadata, user: body.user.id,
  });
});

app.view('sure', async ({ ack, body }) => {
  await ack();
  print({ step: 'sure', title: body.view.title.text });
});

app.view({ callback_id: /ask|details/, type: 'view_closed' }, async ({ ack, body, view }) => {
  await ack();
  print({ step: 'close', view: view.callback_id, isCleared: body.is_cleared });
});

app.command('/now', async ({ ack, command }) => {
  await ack(`now: ${command.text}`);
  print({ step: '/now', command });
});

app.command('/later', async ({ ack, respond, command }) => {
  await ack();
  await runStep('/later', async () => {
    for (const count of [1, 2, 3, 4]) await respond(`whisper ${count}`);
    await respond({ response_type: 'in_channel', text: `${command.user_name} asked` });
    return { sixth: await respond('too many').then(() => 'accepted', (error) => error.message) };
  });
});

app.shortcut('ask_about', async ({ ack, shortcut, respond }) => {
  await ack();
  await respond({ text: `about ${shortcut.message.text}` });
  print({ step: 'shortcut', type: shortcut.type, text: shortcut.message.text, channel: shortcut.channel.id });
});

app.error(async (error) => print({ step: 'listener', error: explain(error.original ?? error) }));

await runStep('start', async () => {
  const server = await app.start(0);
  const { user_id, bot_id, team_id } = await app.client.auth.test({ token: SLACK_BOT_TOKEN });
  const rejected = await catchCode(app.client.auth.test({ token: 'xoxb-wrong' }));
  return { user_id, bot_id, team_id, rejected, port: server.address?.().port };
});
