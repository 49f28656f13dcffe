"""Split and Broadcast against models of them: clients come, loop, leave, die and come back, while a source gives, in any order.

A machine holds the server's side (a dispatcher, fed as server.Server feeds it) and clients that do what client.Stream does: a
queue of what they were sent, NEXT when they ask for more, LEAVE when a loop is left. What the dispatcher wants sent is sent at
once; when a client looks at it is a rule of its own, so any amount may be under way.
"""

from __future__ import annotations

from collections import defaultdict, deque

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ringbuf.net.session import Batch, Session

CAPACITY = 4
MOST_TURNS = 5000


class Parcel:
    nbytes = 1


class Client:
    """What a client knows, as Stream has it."""

    def __init__(self, session):
        self.session = session
        self.queue = deque()  # (seq, batch), or an END's (None, (epoch, length)), or FINISHED's (None, None)
        self.seq = 0  # handed out
        self.hand = {}  # handed out and not done, by number
        self.looping = False
        self.finished = False
        self.epoch = None  # of the loop, once it is known
        self.seen = []  # places handed out in this loop
        self.at = None  # broadcast: the place that must come next; None where it is not known

    def __repr__(self):
        return f"client {self.session.number}"


class Machine(RuleBasedStateMachine):
    """What both have in common. Dispatcher is set by subclasses."""

    Dispatcher = None

    @initialize(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4), ahead=st.integers(1, 3), clients=st.integers(0, 3))
    def begin_serving(self, lengths, ahead, clients):
        self.lengths = lengths
        self.ahead = ahead
        self.clients = []
        self.numbers = 0
        self.states = []  # of clients that are gone
        self.acked = defaultdict(set)  # by epoch: indices that somebody was done with
        self.source = [0, 0]  # the place of what it gives next
        self.ended = {}  # epochs that the source ended, and how long they were then
        self.leavers = set()  # epochs that somebody left early, in some way or other
        self.dispatcher = self.Dispatcher(len(self.lengths))
        for _ in range(clients):
            self.somebody_joins(True)
            self.begin(self.clients[-1])

    # ---- the source

    @property
    def source_is_over(self):
        return self.source[0] >= len(self.lengths)

    def can_give(self):
        epoch, index = self.source
        if self.source_is_over:
            return False
        return self.dispatcher.wanted_from > epoch or index == self.lengths[epoch] or self.dispatcher.stored < CAPACITY

    @precondition(lambda self: self.can_give())
    @rule(times=st.integers(1, 4))
    def source_gives(self, times=1):
        for _ in range(times):
            if self.can_give():
                self.give()

    def give(self):
        epoch, index = self.source
        if self.dispatcher.wanted_from > epoch or index == self.lengths[epoch]:
            self.dispatcher.end_epoch(epoch, index)
            self.ended[epoch] = index
            self.source = [epoch + 1, 0]
        else:
            self.dispatcher.add(Batch(epoch, index, Parcel()))
            self.source[1] += 1
        self.send_out()

    # ---- clients

    def new_client(self):
        self.numbers += 1
        return Client(Session(self.numbers, f"client {self.numbers}", None))

    @precondition(lambda self: len(self.clients) < 4)
    @rule(now=st.booleans())
    def somebody_joins(self, now):
        client = self.new_client()
        self.dispatcher.join(client.session, now)
        self.clients.append(client)
        self.joined(client, now)
        self.send_out()

    def some(self, data, condition):
        able = [client for client in self.clients if condition(client)]
        return data.draw(st.sampled_from(able)) if able else None

    @rule(data=st.data())
    def somebody_begins(self, data):
        client = self.some(data, lambda client: not client.looping and not client.finished)
        if client is not None:
            self.begin(client)

    def begin(self, client):
        client.looping = True
        client.seen = []
        self.dispatcher.begin(client.session, client.seq + self.ahead)
        self.send_out()

    @rule(data=st.data())
    def somebody_asks_for_the_next(self, data):
        client = self.some(data, lambda client: client.looping)
        if client is not None:
            self.ask(client)
            if client.queue:
                self.look(client)

    def ask(self, client):
        for seq, batch in client.hand.items():
            assert seq <= client.seq
            self.acknowledge(client, batch)
        client.hand.clear()
        self.dispatcher.go_on(client.session, client.seq, client.seq + self.ahead)
        self.send_out()

    @rule(data=st.data())
    def somebody_looks_at_what_came(self, data):
        client = self.some(data, lambda client: client.looping and client.queue and not client.hand)
        if client is not None:
            self.look(client)

    def look(self, client):
        seq, what = client.queue.popleft()
        if seq is not None:
            assert client.looping, f"{client} got {what} outside of a loop"
            assert seq == client.seq + 1
            client.seq = seq
            client.hand[seq] = what
            client.session.free(seq)
            if client.epoch is None:
                client.epoch = what.epoch
            assert what.epoch == client.epoch, f"{client} got {what} in its loop over epoch {client.epoch}"
            client.seen.append(what.place)
            self.handed(client, what)
        elif what is None:
            assert client.looping
            client.looping, client.finished = False, True
        else:
            epoch, length = what
            assert client.looping, f"{client}'s loop ended twice"
            assert client.epoch in (None, epoch), f"the loop of {client} over epoch {client.epoch} ended as of {epoch}"
            assert not client.hand and not client.queue
            self.loop_ended(client, epoch, length)
            client.looping, client.epoch = False, epoch + 1

    @rule(data=st.data())
    def somebody_leaves_its_loop(self, data):
        client = self.some(data, lambda client: client.looping)
        if client is not None:
            for batch in client.hand.values():
                self.acknowledge(client, batch)
            client.hand.clear()
            self.dispatcher.leave(client.session, client.seq)
            client.seq = client.session.sent
            client.looping = False
            client.queue.clear()
            client.epoch = self.dispatcher.epoch_of(client.session)
            self.left(client)
            self.send_out()

    @rule(data=st.data(), kept=st.booleans())
    def somebody_dies(self, data, kept):
        client = self.some(data, lambda client: True)
        if client is not None:
            self.clients.remove(client)
            self.died(client)
            if kept and not client.finished:
                self.states.append(self.state_of(client))
            self.dispatcher.remove(client.session)
            self.send_out()

    @precondition(lambda self: self.states and len(self.clients) < 4)
    @rule(data=st.data())
    def somebody_comes_back(self, data):
        epoch, index, done = self.states.pop(data.draw(st.integers(0, len(self.states) - 1)))
        client = self.new_client()
        self.dispatcher.join(client.session)
        refused = self.dispatcher.begin_at(client.session, epoch, index, done)
        if refused is not None:
            self.dispatcher.remove(client.session)
            self.refused((epoch, index), refused)
            return
        client.epoch = epoch
        self.clients.append(client)
        self.came_back(client, (epoch, index))
        self.send_out()

    @precondition(lambda self: any(not client.finished for client in self.clients))
    @rule(data=st.data())
    def server_is_started_anew(self, data):
        """All of its clients come back, each with what it knows; the source begins where the first of them, or all, need it."""
        gone = [client for client in self.clients if not client.finished]
        states = [self.state_of(client) for client in data.draw(st.permutations(gone))]
        epoch, index, _ = self.first_of(states)
        self.dispatcher = self.Dispatcher(len(self.lengths), epoch, index)
        self.source, self.ended = [epoch, index], {}
        self.clients, self.states = [], []
        self.forget_all_but(states)
        for epoch, index, done in states:
            client = self.new_client()
            self.dispatcher.join(client.session)
            assert self.dispatcher.begin_at(client.session, epoch, index, done) is None
            client.epoch = epoch
            self.clients.append(client)
            self.came_back(client, (epoch, index))
        self.send_out()

    # ---- what is sent

    def send_out(self):
        self.before_steps()
        for session, step in self.dispatcher.steps():
            client = next(client for client in self.clients if client.session is session)
            if isinstance(step, Batch):
                assert session.room > 0, f"{client} has no room"
                self.sent(client, step)
                client.queue.append((session.send(step), step))
            elif step is None:
                client.queue.append((None, None))
            else:
                client.queue.append((None, (session.epoch - 1, step)))
        assert not list(self.dispatcher.steps()), "there were steps left"
        for client in self.clients:
            assert len(client.session.open) <= self.ahead + 1
        self.after_steps()

    # ---- the end

    def teardown(self):
        """Everybody goes on until all epochs are over: nothing may be stuck."""
        if not hasattr(self, "dispatcher"):
            return
        for _ in range(MOST_TURNS):
            if self.dispatcher.finished:
                break
            if not self.clients:
                self.somebody_joins(True)
            moved = False
            while self.can_give():
                self.source_gives()
                moved = True
            for client in list(self.clients):
                if not client.looping and not client.finished and not self.dispatcher.finished:
                    self.begin(client)
                    moved = True
                while client.looping and (client.queue or client.hand):
                    moved = True
                    self.ask(client)
                    if client.queue:
                        self.look(client)
            assert moved, "nothing can go on"
        assert self.dispatcher.finished, "it does not come to its end"
        self.at_the_end()

    # ---- for subclasses

    def joined(self, client, now): ...
    def handed(self, client, batch): ...
    def acknowledge(self, client, batch): ...
    def loop_ended(self, client, epoch, length): ...
    def left(self, client): ...
    def died(self, client): ...
    def state_of(self, client): ...
    def first_of(self, states): ...
    def forget_all_but(self, states): ...
    def came_back(self, client, place): ...
    def refused(self, place, why): ...
    def sent(self, client, batch): ...
    def before_steps(self): ...
    def after_steps(self): ...
    def at_the_end(self): ...


class SplitMachine(Machine):
    """Each batch to one, each exactly once, and again only if nobody was done with it."""

    def before_steps(self):
        self.epoch_before = self.dispatcher.epoch

    def sent(self, client, batch):
        assert batch.index not in self.acked[batch.epoch], f"{batch} is sent again, and somebody was done with it"
        holders = [other for other in self.clients if batch in other.session.open.values()]
        assert not holders, f"{batch} is sent to {client}, and {holders} have it"
        assert batch.epoch == self.dispatcher.epoch

    def acknowledge(self, client, batch):
        assert batch.index not in self.acked[batch.epoch], f"{batch} was done with twice"
        self.acked[batch.epoch].add(batch.index)

    def complete(self, epoch):
        return self.acked[epoch] >= set(range(self.lengths[epoch]))

    def after_steps(self):
        epoch = self.dispatcher.epoch
        for over in range(self.epoch_before, epoch):
            inside = [client for client in self.clients if client.session.inside and client.session.epoch == over]
            assert not inside
            assert self.complete(over) or self.abandoned(over), f"epoch {over} ended with {self.acked[over]} done"
        if epoch < len(self.lengths):
            given = self.source[1] if self.source[0] == epoch else self.ended.get(epoch, 0)
            busy = {batch.index for client in self.clients for batch in client.session.open.values() if batch.epoch == epoch}
            idle = [client for client in self.clients if client.session.epoch == epoch and client.session.room > 0]
            waiting = set(range(given)) - busy - self.acked[epoch]
            assert not (idle and waiting), f"{idle} have room, and {waiting} of epoch {epoch} wait"
            ended = self.complete(epoch) and epoch in self.ended
            nobody = not any(client.session.inside for client in self.clients)
            assert not ended or (nobody and not self.acked[epoch]), f"epoch {epoch} is done, and does not end"
        handed_back = sum(len(client.session.open) for client in self.clients)
        assert self.dispatcher.stored <= CAPACITY + 4 * (self.ahead + 1) + handed_back

    def abandoned(self, epoch):
        """Whether it may have ended because nobody was in it any more, and somebody wanted the next one."""
        return epoch in self.leavers

    def left(self, client):
        self.leavers.add(client.epoch - 1)

    def came_back(self, client, place):
        for epoch in range(place[0]):
            if not self.complete(epoch):
                self.leavers.add(epoch)  # it had left that one, or had found it over

    def died(self, client):
        if client.epoch is not None:
            self.leavers.add(client.epoch)  # then others may be ahead of it
        self.leavers.add(client.session.epoch)

    def loop_ended(self, client, epoch, length):
        assert self.dispatcher.epoch > epoch
        if epoch not in self.leavers:
            assert self.complete(epoch)

    def first_of(self, states):
        return states[0]

    def forget_all_but(self, states):
        self.acked.clear()
        self.leavers.update(range(states[0][0]))
        for epoch, index, done in states:
            self.acked[epoch].update(range(index), done)

    def state_of(self, client):
        epoch = self.dispatcher.epoch_of(client.session) if client.epoch is None else client.epoch
        done = self.acked[epoch]
        index = 0
        while index in done:
            index += 1
        return epoch, index, sorted(done - set(range(index)))

    def refused(self, place, why):
        raise AssertionError(f"refused at {place}: {why}")


class BroadcastMachine(Machine):
    """Each batch to each, in order and without a gap, from where a client began."""

    def first_of(self, states):
        return min(states)

    def joined(self, client, now):
        client.whole = not now

    def came_back(self, client, place):
        client.at = place
        client.whole = False

    def refused(self, place, why):
        assert place < self.dispatcher._oldest, f"refused at {place}: {why}"

    def handed(self, client, batch):
        if client.at is not None:
            assert batch.place == client.at, f"{client} got {batch}, and {client.at} should come"
        elif client.whole:
            assert batch.index == 0, f"{client} wanted whole epochs, and got {batch} first"
        client.at = batch.epoch, batch.index + 1

    def loop_ended(self, client, epoch, length):
        if client.at is not None:
            assert client.at == (epoch, length), f"epoch {epoch} of {length} ended for {client}, for whom {client.at} should come"
        if epoch not in self.leavers:
            assert length == self.lengths[epoch]
        client.at = epoch + 1, 0

    def left(self, client):
        client.at = client.epoch, 0
        self.leavers.add(client.epoch - 1)

    def state_of(self, client):
        place = client.at or (self.dispatcher.epoch_of(client.session), 0)
        if client.hand:
            place = next(iter(client.hand.values())).place
        return *place, []

    def after_steps(self):
        assert self.dispatcher.stored <= CAPACITY
        for client in self.clients:
            session = client.session
            assert session.room <= 0 or client.session not in self.dispatcher._cursors or self.nothing_for(client), (
                f"{client} has room, and there is something for it"
            )

    def nothing_for(self, client):
        """Whether all that was given, and is for this one, was sent to it."""
        sent = [what.place for _, what in client.queue if isinstance(what, Batch)]
        ends = [what[0] for seq, what in client.queue if seq is None and what is not None]
        at = client.at
        if ends or (at is None and not sent):
            return True
        following = (sent[-1][0], sent[-1][1] + 1) if sent else at
        return tuple(self.source) <= following and following[0] not in self.ended
