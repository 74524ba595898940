"""Two players take fields of a board; whoever takes a field first has it. There is no game server.

    python examples/game.py :4000 :4001

Each player has a copy of the board and applies all moves, its own too, in the order in which they
are delivered. Under pairwise order both copies are the same, although both players often grab the
same field at the same moment.
"""

import random
import sys

import trio

from plait import Client, Subscription, connect

FIELDS = 8
MOVES = 30

Board = dict[int, str]


async def play(client: Client, name: str) -> None:
    """Grab fields at random, as fast as a person would who is in a hurry."""
    chance = random.Random(name)
    for _ in range(MOVES):
        await client.publish({"game": 7, "player": name, "field": chance.randrange(FIELDS)})
        await trio.sleep(0.01)
    await client.publish({"game": 7, "player": name, "has_finished": True})


async def follow(moves: Subscription, board: Board) -> None:
    """Apply moves until both players have finished; a field that is taken stays taken."""
    playing = 2
    async for delivery in moves:
        move = delivery.content
        if move.get("has_finished"):
            playing -= 1
            if not playing:
                break
        else:
            board.setdefault(int(move["field"]), str(move["player"]))


async def main(first: str, second: str) -> int:
    """Return 0 if both players end with the same board."""
    boards: tuple[Board, Board] = ({}, {})
    async with connect(first, name="red") as red, connect(second, name="blue") as blue:
        players = {"red": red, "blue": blue}
        moves = [await client.subscribe("game = 7") for client in players.values()]
        for client in players.values():
            await client.advertise("game = 7")
        async with trio.open_nursery() as nursery:
            for subscription, board in zip(moves, boards, strict=True):
                nursery.start_soon(follow, subscription, board)
            for name, client in players.items():
                nursery.start_soon(play, client, name)

    for field in range(FIELDS):
        print(f"field {field}: {boards[0].get(field, 'nobody')}")
    print("the same" if boards[0] == boards[1] else "not the same")
    return 0 if boards[0] == boards[1] else 1


if __name__ == "__main__":
    sys.exit(trio.run(main, sys.argv[1], sys.argv[2]))
