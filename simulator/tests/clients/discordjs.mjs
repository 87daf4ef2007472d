// Bot with discord.js. A mention names a step; each step prints one JSON line.
import {
  ActionRowBuilder, ApplicationCommandType, ButtonBuilder, ButtonStyle, ChannelSelectMenuBuilder, ChannelType, Client,
  ContainerBuilder, EmbedBuilder, Events, GatewayIntentBits, LabelBuilder, MentionableSelectMenuBuilder, MessageFlags,
  ModalBuilder, Partials, REST, RoleSelectMenuBuilder, Routes, SectionBuilder, SeparatorBuilder, SlashCommandBuilder,
  StringSelectMenuBuilder, TextDisplayBuilder, TextInputBuilder, TextInputStyle, UserSelectMenuBuilder,
} from 'discord.js';

const { DISCORD_API_URL, DISCORD_TOKEN } = process.env;
const rest = { api: DISCORD_API_URL.replace('/v10', ''), version: '10' };
const { Guilds } = GatewayIntentBits;
const intents = [
  Guilds, GatewayIntentBits.GuildMembers, GatewayIntentBits.GuildMessages, GatewayIntentBits.GuildMessageReactions,
  GatewayIntentBits.GuildMessageTyping, GatewayIntentBits.GuildMessagePolls, GatewayIntentBits.DirectMessages,
  GatewayIntentBits.MessageContent,
];
const partials = [Partials.Channel, Partials.Message, Partials.Reaction];
const client = new Client({ intents, partials, rest });

const print = (line) => console.log(JSON.stringify(line));

async function runStep(step, work) {
  try {
    print({ step, ...(await work()) });
  } catch (error) {
    print({ step, error: error.stack ?? String(error) });
  }
}

// Awaits a call; returns the error code with which Discord refuses it, or 0.
const catchCode = (call) => call.then(() => 0, (error) => error.code ?? String(error));
const download = async (attachment) => [...Buffer.from(await (await fetch(attachment.url)).arrayBuffer())];
const row = (...components) => new ActionRowBuilder().addComponents(...components);
const button = (id) => new ButtonBuilder().setCustomId(id).setLabel(id).setStyle(ButtonStyle.Secondary);
const option = (value) => ({ label: value, value });

const commands = [
  new SlashCommandBuilder().setName('ask').setDescription('Ask')
    .addStringOption((o) => o.setName('what').setDescription('What').setRequired(true).setAutocomplete(true))
    .addIntegerOption((o) => o.setName('times').setDescription('Times'))
    .addBooleanOption((o) => o.setName('loud').setDescription('Loud')),
  new SlashCommandBuilder().setName('slow').setDescription('Answer later'),
  new SlashCommandBuilder().setName('whisper').setDescription('Answer in private'),
  { name: 'Summarize', type: ApplicationCommandType.Message },
].map((command) => (command.toJSON ? command.toJSON() : command));

const steps = {
  async mention({ message }) {
    await message.reply({ content: `hello ${message.author}`, allowedMentions: { repliedUser: true } });
    return {
      content: message.content,
      author: message.author.username,
      isMentioned: message.mentions.has(client.user),
      guild: message.guild.name,
      channel: message.channel.name,
    };
  },

  async edits({ message }) {
    await message.channel.sendTyping();
    const reply = await message.reply('…');
    for (const count of [1, 2, 3, 4]) await reply.edit(`so far ${count}`);
    const embed = new EmbedBuilder().setTitle('Answer').setDescription('*done*').setColor(0x00ff00)
      .addFields({ name: 'took', value: '1 s', inline: true }).setFooter({ text: 'bot' });
    const link = new ButtonBuilder().setLabel('Site').setStyle(ButtonStyle.Link).setURL('https://a.example');
    const last = await reply.edit({ content: 'done', embeds: [embed], components: [row(button('stop'), link)] });
    return {
      isEdited: last.editedTimestamp !== null,
      embed: last.embeds[0].title,
      labels: last.components[0].components.map(({ label }) => label),
    };
  },

  async flags({ message }) {
    const embed = new EmbedBuilder().setTitle('Shown');
    const sent = await message.channel.send({ embeds: [embed], flags: MessageFlags.SuppressNotifications });
    const flags = [sent.flags.bitfield];
    for (const isHidden of [true, false]) flags.push((await sent.suppressEmbeds(isHidden)).flags.bitfield);
    return { flags };
  },

  async delete({ message }) {
    const reply = await message.channel.send('oops');
    await reply.delete();
    return { deletedTwice: await catchCode(reply.delete()) };
  },

  async buttons({ message }) {
    await message.channel.send({
      content: 'press', components: [row(button('update'), button('later'), button('secret'), button('more'))],
    });
  },

  async selects({ message }) {
    const menus = [
      new StringSelectMenuBuilder().setCustomId('text').setMaxValues(2).addOptions(option('red'), option('blue')),
      new UserSelectMenuBuilder().setCustomId('user'),
      new RoleSelectMenuBuilder().setCustomId('role'),
      new ChannelSelectMenuBuilder().setCustomId('channel'),
      new MentionableSelectMenuBuilder().setCustomId('mentionable'),
    ];
    await message.channel.send({ content: 'choose', components: menus.map((menu) => row(menu)) });
  },

  async modals({ message }) {
    await message.channel.send({ content: 'open', components: [row(button('open'))] });
  },

  async componentsV2({ message }) {
    const text = (content) => new TextDisplayBuilder().setContent(content);
    const container = new ContainerBuilder().setAccentColor(0xff0000).addTextDisplayComponents(text('# Title'))
      .addSeparatorComponents(new SeparatorBuilder())
      .addSectionComponents(new SectionBuilder().addTextDisplayComponents(text('body')).setButtonAccessory(button('act')))
      .addActionRowComponents(row(button('other')));
    const sent = await message.channel.send({ components: [container], flags: MessageFlags.IsComponentsV2 });
    return { types: sent.components[0].components.map(({ type }) => type) };
  },

  async upload({ message }) {
    const file = (name, bytes, description) => ({ attachment: Buffer.from(bytes), name, description });
    const sent = await message.channel.send({
      content: 'two files', files: [file('a b.txt', [97]), file('b.bin', [0, 255, 10], 'bytes')],
    });
    const [first, second] = sent.attachments.values();
    const bytes = await download(second);
    const edited = await sent.edit({ attachments: [second] });
    return {
      names: [first.name, second.name], description: second.description, bytes, remaining: edited.attachments.map(({ name }) => name),
    };
  },

  async files({ message }) {
    const [file] = message.attachments.values();
    return { name: file.name, bytes: await download(file) };
  },

  async direct({ message }) {
    const sent = await message.author.send('in private');
    return { isDirect: sent.channel.isDMBased() };
  },

  async threads({ message }) {
    const { channel } = message;
    const fromMessage = await message.startThread({ name: 'from a message', autoArchiveDuration: 60 });
    await fromMessage.send('in the thread');
    const open = await channel.threads.create({ name: 'public', type: ChannelType.PublicThread });
    const closed = await channel.threads.create({ name: 'private', type: ChannelType.PrivateThread });
    await open.setName('renamed');
    await open.setArchived(true);
    await open.setArchived(false);
    const forum = message.guild.channels.cache.find(({ name }) => name === 'ideas');
    const post = await forum.threads.create({ name: 'a post', message: { content: 'what if' } });
    const active = await message.guild.channels.fetchActiveThreads();
    return {
      types: [fromMessage, open, closed, post].map(({ type }) => type),
      names: active.threads.map(({ name }) => name),
      starter: (await fromMessage.fetchStarterMessage()).id === message.id,
      startedTwice: await catchCode(client.rest.post(Routes.threads(channel.id, message.id), { body: { name: 'again' } })),
    };
  },

  async inThread({ message }) {
    await message.reply('here');
    return { isThread: message.channel.isThread(), parent: message.channel.parent.name };
  },

  async history({ message }) {
    const texts = async (options) => (await message.channel.messages.fetch(options)).map(({ content }) => content);
    const middle = [...(await message.channel.messages.fetch({ limit: 4 })).values()].at(-1);
    return {
      before: await texts({ before: middle.id, limit: 2 }),
      after: await texts({ after: middle.id, limit: 2 }),
      around: await texts({ around: middle.id, limit: 3 }),
      one: (await message.channel.messages.fetch({ message: middle.id, force: true })).content,
    };
  },

  async reactions({ message }) {
    for (const emoji of ['👀', '👍', '🎉']) await message.react(emoji);
    await message.reactions.cache.get('👀').users.remove(client.user);
    return { unknown: await catchCode(message.react('nonsense:1')) };
  },

  async directory({ message }) {
    const { guild, author } = message;
    const guilds = await client.guilds.fetch();
    const member = await guild.members.fetch({ user: author.id, force: true });
    const full = await client.guilds.fetch({ guild: guild.id, force: true });
    const channels = await guild.channels.fetch();
    return {
      guilds: guilds.map(({ name }) => name),
      user: (await client.users.fetch(author.id, { force: true })).username,
      member: member.displayName,
      memberCount: full.approximateMemberCount,
      channels: channels.map(({ name }) => name),
      roles: (await guild.roles.fetch()).map(({ name }) => name),
      application: (await client.application.fetch()).id,
      members: (await guild.members.fetch()).map(({ user }) => user.username),
    };
  },

  async oneCommand({ message }) {
    const { commands: guildCommands } = message.guild;
    const created = await guildCommands.create({ name: 'temporary', description: 'One' });
    const edited = await guildCommands.edit(created, { description: 'Two' });
    const listed = await guildCommands.fetch();
    await created.delete();
    return {
      edited: edited.description, listed: listed.map(({ name }) => name), remaining: (await guildCommands.fetch()).size,
    };
  },

  async pins({ message }) {
    await message.pin();
    const { items } = await message.channel.messages.fetchPins();
    await message.unpin();
    const { items: remaining } = await message.channel.messages.fetchPins();
    return { pinned: items.map((pin) => pin.message.id), remaining: remaining.length };
  },

  async bulkDelete({ message }) {
    const sent = [];
    for (const text of ['a', 'b', 'c']) sent.push(await message.channel.send(text));
    await message.channel.bulkDelete(sent);
  },

  async cleanReactions({ message, argument }) {
    const target = await message.channel.messages.fetch(argument);
    const reaction = target.reactions.resolve('👋');
    const users = await reaction.users.fetch();
    await reaction.users.remove(message.author);
    const remaining = await reaction.users.fetch();
    await target.reactions.removeAll();
    return { users: users.map(({ username }) => username), remaining: remaining.map(({ username }) => username) };
  },

  async members({ message }) {
    const { members } = message.guild;
    const listed = await members.list({ limit: 100 });
    const found = await members.search({ query: 'gra' });
    await members.me.setNickname('Helper');
    return { listed: listed.map(({ user }) => user.username), found: found.map(({ user }) => user.username) };
  },

  async archivedThreads({ message }) {
    const { channel, author } = message;
    const thread = await channel.threads.create({ name: 'old', type: ChannelType.PublicThread });
    await thread.members.add(author);
    const members = await thread.members.fetch();
    await thread.setArchived(true);
    const { threads } = await channel.threads.fetchArchived();
    return { members: members.size, isMember: members.has(author.id), names: threads.map(({ name }) => name) };
  },

  async poll({ message }) {
    const poll = { question: { text: 'Tea?' }, answers: [{ text: 'yes' }, { text: 'no' }], duration: 24, allowMultiselect: false };
    const sent = await message.channel.send({ poll });
    return { question: sent.poll.question.text, answers: sent.poll.answers.map(({ text }) => text) };
  },

  async forward({ message, argument }) {
    const forwarded = await message.forward(argument);
    return { content: forwarded.messageSnapshots.first().content };
  },

  async manageChannels({ message }) {
    const { guild } = message;
    const channel = await guild.channels.create({ name: 'made', topic: 'first' });
    await channel.setTopic('second');
    // Not from the cache: an older event may arrive after the response.
    const { topic } = await client.rest.get(Routes.channel(channel.id));
    const webhook = await channel.createWebhook({ name: 'Hook' });
    const sent = await webhook.send('by the hook');
    const invite = await channel.createInvite({ maxAge: 60 });
    await webhook.delete();
    await channel.delete();
    return {
      topic, isByWebhook: sent.webhookId === webhook.id, code: invite.code,
      deletedChannel: await catchCode(client.channels.fetch(channel.id, { force: true })),
    };
  },

  async errors({ message, argument }) {
    const { channel } = message;
    const other = await channel.send('x');
    return {
      nowhere: await catchCode(client.channels.fetch('1', { force: true })),
      secret: await catchCode(client.channels.fetch(argument, { force: true })),
      nothing: await catchCode(channel.messages.fetch('1')),
      nobody: await catchCode(client.users.fetch('1')),
      foreign: await catchCode(client.rest.patch(Routes.channelMessage(channel.id, message.id), { body: { content: 'x' } })),
      empty: await catchCode(channel.send(' ')),
      long: await catchCode(channel.send('x'.repeat(2001))),
      badButtons: await catchCode(other.edit({ components: [{ type: 1, components: [{ type: 2, style: 1, custom_id: 'x', label: 'x'.repeat(81) }] }] })),
      badEmbed: await catchCode(other.edit({ embeds: [{ title: 'x', color: 0x1000000 }] })),
    };
  },

  async slowDown({ message }) {
    const waits = [];
    const listen = ({ global }) => waits.push(global);
    client.rest.on('rateLimited', listen);
    await message.channel.send('at last');
    client.rest.off('rateLimited', listen);
    return { isGlobal: waits.includes(true) };
  },

  async cloudflareLimit({ message }) {
    return { status: await message.channel.send('at last').then(() => 200, (error) => error.status) };
  },

  async retry({ message }) {
    await message.channel.send('again');
  },

  async ping() {},

  async shards() {
    const other = new Client({ intents: [Guilds], rest, shards: 'auto' });
    await other.login(DISCORD_TOKEN);
    if (!other.isReady()) await new Promise((resolve) => other.once(Events.ClientReady, resolve));
    const { size } = other.ws.shards;
    await other.destroy();
    return { count: size };
  },

  async noContent() {
    const other = new Client({ intents: [Guilds, GatewayIntentBits.GuildMessages], rest });
    const texts = [];
    other.on(Events.MessageCreate, async ({ content }) => {
      texts.push(content);
      if (texts.length < 2) return;
      print({ step: 'received', texts });
      await other.destroy();
    });
    await other.login(DISCORD_TOKEN);
    if (!other.isReady()) await new Promise((resolve) => other.once(Events.ClientReady, resolve));
  },

  async refuseLogin() {
    const start = async (options, token = DISCORD_TOKEN) => {
      const other = new Client({ rest, ...options });
      const code = await other.login(token).then(() => 'accepted', (error) => error.code ?? error.message);
      await other.destroy();
      return code;
    };
    return {
      intents: String(await start({ intents: [GatewayIntentBits.GuildPresences] })),
      token: String(await start({ intents: [Guilds] }, 'wrong.to.ken')),
    };
  },
};

client.on(Events.MessageCreate, async (message) => {
  if (message.author.id === client.user.id) return;
  if (message.channel.isDMBased()) {
    await runStep('directMessage', async () => {
      await message.channel.send(`you wrote ${message.content}`);
      return { content: message.content, author: message.author.username };
    });
  } else if (message.mentions.users.has(client.user.id)) {
    const [, step, argument] = message.content.split(' ');
    await runStep(step, () => steps[step]({ message, argument }));
  }
});

client.on(Events.MessageUpdate, (before, after) => {
  if (after.author?.id !== client.user.id && after.editedTimestamp) print({ step: 'changed', content: after.content });
});
client.on(Events.MessageDelete, (message) => {
  if (message.author?.id !== client.user.id) print({ step: 'deleted', id: message.id });
});
client.on(Events.MessageReactionAdd, (reaction, user) => {
  if (user.id !== client.user.id) print({ step: `reacted ${reaction.message.id}`, emoji: reaction.emoji.name });
});
client.on(Events.GuildMemberAdd, (member) => print({ step: 'joined', name: member.user.username }));
client.on(Events.ThreadCreate, (thread) => {
  if (thread.ownerId !== client.user.id) print({ step: 'threadCreated', name: thread.name });
});
client.on(Events.ThreadMembersUpdate, (added, _, thread) => {
  if (thread.ownerId !== client.user.id) print({ step: 'threadMembers', names: added.map(({ user }) => user.username) });
});
client.on(Events.ChannelPinsUpdate, (channel) => print({ step: 'pinned', name: channel.name }));
client.on(Events.TypingStart, ({ user }) => {
  if (user.id !== client.user.id) print({ step: 'typing', name: user.username });
});
client.on(Events.GuildUnavailable, () => print({ step: 'unavailable' }));
client.on(Events.GuildAvailable, () => print({ step: 'available' }));
client.on(Events.MessagePollVoteAdd, (answer) => runStep('voted', async () => {
  const voters = await answer.voters.fetch();
  const ended = await answer.poll.end();
  return { answer: answer.id, voters: voters.map(({ username }) => username), isOver: ended.poll.resultsFinalized };
}));

const componentHandlers = {
  async update(interaction) {
    await interaction.update({ content: 'pressed', components: interaction.message.components });
  },
  async later(interaction) {
    await interaction.deferUpdate();
    await interaction.editReply({ content: 'pressed later' });
  },
  async secret(interaction) {
    await interaction.reply({ content: 'psst', flags: MessageFlags.Ephemeral });
    return { respondedTwice: await catchCode(interaction.client.rest.post(Routes.interactionCallback(interaction.id, interaction.token), { body: { type: 6 }, auth: false })) };
  },
  async more(interaction) {
    await interaction.deferUpdate();
    const sent = await interaction.followUp({ content: 'more', flags: MessageFlags.Ephemeral });
    return { content: sent.content };
  },
  async open(interaction) {
    const label = (text, component) => new LabelBuilder().setLabel(text)[component instanceof TextInputBuilder ? 'setTextInputComponent' : 'setStringSelectMenuComponent'](component);
    const modal = new ModalBuilder().setCustomId('form').setTitle('Form').addLabelComponents(
      label('Why', new TextInputBuilder().setCustomId('why').setStyle(TextInputStyle.Paragraph)),
      label('Colour', new StringSelectMenuBuilder().setCustomId('colour').addOptions(option('red'), option('blue'))),
    );
    await interaction.showModal(modal);
  },
  async text(interaction) { return select(interaction); },
  async user(interaction) { return { ...(await select(interaction)), names: interaction.users.map(({ username }) => username) }; },
  async role(interaction) { return { ...(await select(interaction)), names: interaction.roles.map(({ name }) => name) }; },
  async channel(interaction) { return { ...(await select(interaction)), names: interaction.channels.map(({ name }) => name) }; },
  async mentionable(interaction) { return { ...(await select(interaction)), names: interaction.users.map(({ username }) => username) }; },
};

async function select(interaction) {
  await interaction.deferUpdate();
  return { values: interaction.values };
}

const commandHandlers = {
  async ask(interaction) {
    const options = { what: interaction.options.getString('what'), times: interaction.options.getInteger('times'), loud: interaction.options.getBoolean('loud') };
    await interaction.reply(`you asked ${options.what}`);
    return { ...options, user: interaction.user.username };
  },
  async slow(interaction) {
    await interaction.deferReply();
    await interaction.editReply('done');
    const more = await interaction.followUp('more');
    await interaction.webhook.editMessage(more, 'still more');
    const { content } = await interaction.fetchReply();
    await interaction.deleteReply();
    return { content };
  },
  async whisper(interaction) {
    const { resource } = await interaction.reply({ content: 'psst', flags: MessageFlags.Ephemeral, withResponse: true });
    return { content: resource.message.content };
  },
  async Summarize(interaction) {
    await interaction.reply({ content: `about ${interaction.targetMessage.content}`, flags: MessageFlags.Ephemeral });
    return { target: interaction.targetMessage.id };
  },
};

client.on(Events.InteractionCreate, async (interaction) => {
  if (interaction.isAutocomplete()) {
    await runStep('autocomplete', async () => {
      const typed = interaction.options.getFocused();
      await interaction.respond([{ name: `${typed}!`, value: typed }]);
      return { typed };
    });
  } else if (interaction.isModalSubmit()) {
    await runStep('form', async () => {
      const values = { why: interaction.fields.getTextInputValue('why'), colour: interaction.fields.getStringSelectValues('colour') };
      await interaction.reply('thanks');
      return values;
    });
  } else {
    const name = interaction.isCommand() ? interaction.commandName : interaction.customId;
    await runStep(`${interaction.isCommand() ? '/' : '#'}${name}`, () => (commandHandlers[name] ?? componentHandlers[name])(interaction));
  }
});

client.on(Events.ShardResume, () => print({ step: 'resumed' }));
client.on(Events.ShardReady, () => print({ step: 'ready' }));
client.on(Events.Error, (error) => print({ step: 'client', error: String(error) }));

client.once(Events.ClientReady, () => runStep('start', async () => {
  const registered = await client.application.commands.set(commands);
  const listed = await client.application.commands.fetch();
  const wrong = new REST(rest).setToken('wrong');
  return {
    user: client.user.username,
    guilds: client.guilds.cache.map(({ name }) => name),
    channels: client.channels.cache.map(({ name }) => name),
    registered: registered.map(({ name }) => name),
    listed: listed.map(({ name }) => name),
    wrongToken: await wrong.get(Routes.user()).then(() => 200, (error) => error.status),
  };
}));

await client.login(DISCORD_TOKEN);
