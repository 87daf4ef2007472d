import os

import discord

client = discord.Client(intents=discord.Intents.default())


@client.event
async def on_message(message):
    if client.user in message.mentions:
        await message.reply(f"hello {message.author.mention}")


client.run(os.environ["DISCORD_TOKEN"])
