// Connections to the other workers of a group: each sends every other one some bytes and gets some, in one call. The calling
// thread moves them itself, straight between the caller's memory and the sockets: no thread to wake, no question first
// whether the other is ready, and a message says how long it is, so that its reader need not know.
#include <nanobind/stl/vector.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "arrays.h"
#include "memory.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int POLL_MS = 500; // then signals are looked at
constexpr int64_t FEW = 1 << 13, MANY = 1 << 15; // bytes: where more than few are to come, many wake who waits for them

struct Header {
    uint64_t number, bytes;
};

// One direction of a connection: a header, then its message.
struct Flow {
    Header header;
    uint8_t *data;
    int64_t bytes, done; // `done` counts the header too; bytes: -1 while nobody has said
    bool finished() const { return bytes >= 0 && done == static_cast<int64_t>(sizeof(Header)) + bytes; }

    int pieces(iovec *vectors) {
        int count = 0;
        const auto head = static_cast<int64_t>(sizeof(Header));
        if (done < head) vectors[count++] = {reinterpret_cast<uint8_t *>(&header) + done, static_cast<size_t>(head - done)};
        const int64_t from = std::max<int64_t>(done - head, 0);
        if (bytes > from) vectors[count++] = {data + from, static_cast<size_t>(bytes - from)};
        return count;
    }
};

struct Peer {
    int socket;
    Flow out, in;
    Pool::Handle memory; // of a message whose length the reader did not know
    int wakes = 1;       // how many bytes do

    // Slow links bring packet by packet, and to wake for each costs more than to read it.
    void wake_late() {
        const int64_t left = in.bytes < 0 ? 0 : static_cast<int64_t>(sizeof(Header)) + in.bytes - in.done;
        const int bytes = left > FEW ? static_cast<int>(std::min(left, MANY)) : 1;
        if (bytes != wakes) setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &(wakes = bytes), sizeof wakes);
    }
};

using ByteArray = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

class Links {
  public:
    // `sockets`: one a worker, non-blocking, -1 for this worker itself. A wait without any progress ends after `timeout`
    // seconds in which this process ran: while it is stopped, as the others may be, nothing can come.
    Links(const std::vector<int> &sockets, double timeout) : timeout_(timeout), pool_(std::make_shared<Pool>()) {
        for (const int socket : sockets) peers_.push_back({socket, {}, {}, nullptr});
    }

    Links(const Links &) = delete;

    // Starts to send: counts[0] bytes to the first worker, the next counts[1] to the second, ... What does not fit into the
    // sockets' memory goes out while `finish` waits. `data` must not change until then.
    void begin(In<uint8_t> data, const std::vector<int64_t> &counts) {
        if (open_) throw std::logic_error("links: an exchange is still under way");
        int64_t total = 0;
        for (const int64_t count : counts) total += count;
        if (counts.size() != peers_.size() || total != static_cast<int64_t>(data.shape(0)))
            throw std::invalid_argument("links: the counts do not fit the bytes");
        open_ = true;
        ++number_;
        sent_ = data;
        auto *at = const_cast<uint8_t *>(data.data());
        for (size_t p = 0; p < peers_.size(); at += counts[p++])
            peers_[p].out = {{number_, static_cast<uint64_t>(counts[p])}, at, counts[p], 0};
        nb::gil_scoped_release released;
        bool lost = false; // `finish` finds out
        for (Peer &peer : peers_)
            if (peer.socket >= 0) move_out(peer, lost);
    }

    // Waits until all is sent and all has come, expected[p] bytes from worker p into `out`. Returns the workers that are lost.
    std::vector<int> finish_into(Array<uint8_t> out, const std::vector<int64_t> &expected) {
        int64_t total = 0;
        for (const int64_t count : expected) total += count;
        if (expected.size() != peers_.size() || total != static_cast<int64_t>(out.shape(0)))
            throw std::invalid_argument("links: the output does not fit what is expected");
        uint8_t *at = out.data();
        for (size_t p = 0; p < peers_.size(); at += expected[p++]) peers_[p].in = {{}, at, expected[p], 0};
        return finish();
    }

    // The same, for messages of unknown length: (the workers that are lost, each one's message).
    nb::tuple finish_any() {
        for (Peer &peer : peers_) peer.in = {{}, nullptr, -1, 0};
        const std::vector<int> lost = finish();
        nb::list messages;
        for (Peer &peer : peers_) {
            const size_t bytes = lost.empty() && peer.socket >= 0 ? peer.in.bytes : 0;
            Pool::Handle memory = peer.memory ? std::move(peer.memory) : Pool::take(pool_, 1);
            void *start = memory->memory.get();
            nb::capsule owner(memory.release(),
                              [](void *buffer) noexcept { Pool::give_back(static_cast<Pool::Buffer *>(buffer)); });
            messages.append(ByteArray(start, {bytes}, owner));
        }
        return nb::make_tuple(lost, messages);
    }

  private:
    std::vector<Peer> peers_;
    double timeout_;
    std::shared_ptr<Pool> pool_;
    uint64_t number_ = 0;
    bool open_ = false;
    std::optional<In<uint8_t>> sent_;

    static bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

    // Moves bytes until no more go. Returns whether any did; `lost` becomes true when none will any more.
    template <class F> static bool move(Flow &flow, bool &lost, F &&call) {
        bool moved = false;
        while (!flow.finished()) {
            iovec vectors[2];
            size_t wanted = 0;
            const int count = flow.pieces(vectors);
            for (int k = 0; k < count; ++k) wanted += vectors[k].iov_len;
            const ssize_t bytes = call(vectors, count);
            if (bytes <= 0) {
                lost = bytes == 0 || !would_block();
                return moved;
            }
            flow.done += bytes;
            moved = true;
            if (bytes < static_cast<ssize_t>(wanted)) return moved;
        }
        return moved;
    }

    bool move_out(Peer &peer, bool &lost) {
        return move(peer.out, lost, [&](iovec *vectors, int count) {
            msghdr message{};
            message.msg_iov = vectors;
            message.msg_iovlen = count;
            return sendmsg(peer.socket, &message, MSG_NOSIGNAL);
        });
    }

    bool move_in(Peer &peer, bool &lost) {
        return move(peer.in, lost, [&](iovec *vectors, int count) {
            const ssize_t bytes = readv(peer.socket, vectors, count);
            if (bytes > 0 && peer.in.done + bytes >= static_cast<int64_t>(sizeof(Header))) check(peer);
            return bytes;
        });
    }

    void check(Peer &peer) {
        Flow &in = peer.in;
        if (in.bytes < 0) {
            in.bytes = static_cast<int64_t>(in.header.bytes);
            peer.memory = Pool::take(pool_, in.bytes);
            in.data = reinterpret_cast<uint8_t *>(peer.memory->memory.get());
        }
        if (in.header.number != number_ || in.header.bytes != static_cast<uint64_t>(in.bytes))
            throw nb::value_error("the workers are not at the same step of the same program");
    }

    std::vector<int> finish() {
        if (!open_) throw std::logic_error("links: nothing is under way");
        open_ = false;
        std::vector<int> lost;
        nb::gil_scoped_release released;
        double silent = 0, most = 0; // seconds without progress, and what the last wait for some may have taken
        auto looked = Clock::now();
        std::vector<pollfd> sockets(peers_.size(), {-1, 0, POLLIN | POLLOUT}); // of each peer; poll leaves out -1
        while (true) {
            bool moved = false, more = false;
            for (size_t p = 0; p < peers_.size(); ++p) { // those that poll names
                Peer &peer = peers_[p];
                pollfd &socket = sockets[p];
                if (peer.socket < 0) continue;
                bool gone = false;
                if (socket.revents & ~POLLIN) moved |= move_out(peer, gone);
                if (!gone && socket.revents & ~POLLOUT) moved |= move_in(peer, gone);
                if (gone) lost.push_back(static_cast<int>(p));
                socket.events = (peer.in.finished() ? 0 : POLLIN) | (peer.out.finished() ? 0 : POLLOUT);
                socket.fd = socket.events ? peer.socket : -1;
                more |= socket.events != 0;
                peer.wake_late();
            }
            if (!lost.empty() || !more) break;
            const auto now = Clock::now();
            silent = moved ? 0 : silent + std::min(most, std::chrono::duration<double>(now - looked).count());
            looked = now;
            if (silent >= timeout_) {
                for (size_t p = 0; p < peers_.size(); ++p)
                    if (sockets[p].events) lost.push_back(static_cast<int>(p));
                break;
            }
            const auto wait = static_cast<int>(std::min<double>(POLL_MS, (timeout_ - silent) * 1000) + 1);
            most = wait / 1000.0;
            if (const int ready = poll(sockets.data(), sockets.size(), wait); ready <= 0) {
                for (pollfd &one : sockets) one.revents = POLLIN | POLLOUT; // few bytes may have come, too
                nb::gil_scoped_acquire held;
                if (PyErr_CheckSignals()) throw nb::python_error();
            }
        }
        return lost;
    }
};

} // namespace
} // namespace weft

void bind_links(nanobind::module_ &m) {
    using namespace weft;
    nb::class_<Links>(m, "Links")
        .def(nb::init<const std::vector<int> &, double>(), nb::arg("sockets"), nb::arg("timeout"))
        .def("begin", &Links::begin, nb::arg("data").noconvert(), nb::arg("counts"))
        .def("finish_into", &Links::finish_into, nb::arg("out").noconvert(), nb::arg("expected"))
        .def("finish_any", &Links::finish_any);
}
