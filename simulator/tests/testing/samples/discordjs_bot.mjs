import { Client, Events, GatewayIntentBits } from 'discord.js';

const client = new Client({ intents: [GatewayIntentBits.Guilds, GatewayIntentBits.GuildMessages] });
client.on(Events.MessageCreate, async (message) => {
  if (message.mentions.has(client.user)) await message.reply(`hello ${message.author}`);
});
await client.login(process.env.DISCORD_TOKEN);
