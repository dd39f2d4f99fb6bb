// Other connections in the same process, and other members: those whose handles are given meet anew through the store
// and go on as a group of their own. The old group is left once the new one is there, so a meeting that fails changes
// nothing.
//
// A handle names a back end of one process, and what that was a member of when it was asked for:
//
//   tutti:member:RANK:UUID:NONCE    since reconfigure(UUID), or since it was made (-1)
//   tutti:new:RANK:-1:NONCE         made with enable_reconfigure, and no member yet
#include "current_group.hpp"
#include "errors.hpp"
#include "process_group.hpp"
#include "symmetric.hpp"

#if TUTTI_TORCH_NEWEST

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <charconv>
#include <random>
#include <tuple>

namespace tutti_torch {

using c10d::ReconfigureHandle;

namespace {

constexpr char TIMEOUT_OF_RECONFIGURE[] = "; a longer timeout is given by timeout= of reconfigure()";

struct Handle {
    bool member;
    int rank;
    int64_t uuid;
    std::string nonce;

    // Where a set of handles leaves the order open: members by their ranks, then those that join.
    bool operator<(const Handle &other) const {
        return std::tie(other.member, rank, uuid, nonce) < std::tie(member, other.rank, other.uuid, other.nonce);
    }
    ReconfigureHandle text() const {
        return c10::str("tutti:", member ? "member:" : "new:", rank, ":", uuid, ":", nonce);
    }
};

// The part before the next ':', which is taken off.
std::string_view next_part(std::string_view &text) {
    const size_t end = std::min(text.find(':'), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return part;
}

template <class T> bool read_number(std::string_view text, T &number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size();
}

Handle parse_handle(const ReconfigureHandle &text) {
    std::string_view left = text;
    Handle handle;
    const std::string_view back_end = next_part(left), state = next_part(left);
    const bool numbers = read_number(next_part(left), handle.rank) && read_number(next_part(left), handle.uuid);
    handle.member = state == "member";
    handle.nonce = left;
    if (back_end != "tutti" || (!handle.member && state != "new") || !numbers || handle.nonce.empty())
        refuse("reconfigure: expected handles that get_reconfigure_handle() of the back end tutti gave "
               "(\"tutti:...\"), got \"" + text + "\"");
    return handle;
}

std::vector<Handle> ordered(const c10d::ReconfigureOptions &opts) {
    std::vector<Handle> handles;
    std::visit([&](const auto &texts) {
        std::transform(texts.begin(), texts.end(), std::back_inserter(handles), parse_handle);
    }, opts.handles);
    if (std::holds_alternative<std::unordered_set<ReconfigureHandle>>(opts.handles))
        std::sort(handles.begin(), handles.end());
    if (handles.empty())
        refuse("reconfigure: expected the handle of each member, this rank's own among them, got none");
    for (size_t i = 0; i < handles.size(); i++)
        for (size_t k = 0; k < i; k++)
            if (handles[i].nonce == handles[k].nonce)
                refuse(c10::str("reconfigure: expected one handle of each member, got two of the same one: ",
                                handles[k].text(), " and ", handles[i].text()));
    return handles;
}

// Where this rank, whose handle is `own`, stands in the list.
int place_of(const Handle &own, const std::vector<Handle> &handles) {
    const auto same = [&](const Handle &each) { return each.nonce == own.nonce; };
    const auto found = std::find_if(handles.begin(), handles.end(), same);
    if (found == handles.end())
        refuse(c10::str("reconfigure: expected this rank's own handle, ", own.text(), ", among the ", handles.size(),
                        " that are given"));
    if (found->text() != own.text())
        refuse(c10::str("reconfigure: ", found->text(), " is an old handle of this rank, whose membership has changed "
                        "since: its handle is ", own.text(), " now. All members have to exchange theirs anew"));
    return static_cast<int>(found - handles.begin());
}

std::string joined(const std::vector<Handle> &handles) {
    std::string all;
    for (const Handle &each : handles)
        all += each.text() + "\n";
    return all;
}

// Write `value` at `key` unless something else is there. Returns what is there.
std::string claim(tt_store *store, const std::string &key, const std::string &value) {
    tt_store_value now = {};
    check(tt_store_compare_set(store, key.c_str(), "", 0, value.data(), value.size(), &now));
    std::string there(static_cast<const char *>(now.data), now.size);
    tt_store_value_free(&now);
    return there;
}

// The number names the keys of the meeting, and those of an earlier one would be taken for this one's.
void claim_uuid(tt_store *store, int64_t uuid, int rank, const std::vector<Handle> &handles) {
    const std::string all = joined(handles), own = handles[rank].text();
    const std::string by = claim(store, "handles", all);
    if (by != all)
        refuse(c10::str("reconfigure: the uuid ", uuid, " was already used, for other members. Each membership needs "
                        "a new one, and all its members have to give the same handles in the same order: these are\n",
                        all, "and those were\n", by));
    static std::atomic<uint64_t> tries{0};
    const std::string mine = c10::str(own, " ", ++tries);
    if (claim(store, c10::str("came/", rank), mine) != mine)
        refuse(c10::str("reconfigure: the uuid ", uuid, " was already used, by a reconfigure() that failed. Each try "
                        "needs a new one"));
}

std::string new_nonce() {
    std::random_device random;
    char text[17];
    std::snprintf(text, sizeof text, "%08x%08x", static_cast<unsigned>(random()), static_cast<unsigned>(random()));
    return text;
}

WorkPtr completed_work() {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(Tensors()));
    return c10d::Work::create_from_future(future);
}

} // namespace

Membership::Membership() : nonce(new_nonce()) {}

ReconfigureHandle ProcessGroupTutti::get_reconfigure_handle() const {
    return Handle{group_.find() != nullptr, getRank(), membership_.uuid, membership_.nonce}.text();
}

WorkPtr ProcessGroupTutti::reconfigure(const c10d::ReconfigureOptions &opts) {
    const std::unique_lock<std::mutex> alone(membership_.changing, std::try_to_lock);
    if (!alone)
        refuse("reconfigure: another thread is changing this process group");
    const std::vector<Handle> handles = ordered(opts);
    const int rank = place_of(parse_handle(get_reconfigure_handle()), handles);
    const auto timeout = opts.timeout.value_or(options_->timeout);
    if (timeout.count() <= 0)
        refuse(c10::str("reconfigure: expected a timeout of more than 0 ms, got ", timeout.count()));
    const auto prefix = c10::make_intrusive<c10d::PrefixStore>(c10::str("reconfigure/", opts.uuid), store_);
    claim_uuid(adapt_store(prefix, timeout.count()).get(), opts.uuid, rank, handles);

    const int size = static_cast<int>(handles.size());
    become(Group::join(prefix, rank, size, timeout, hooks_, TIMEOUT_OF_RECONFIGURE), rank, size);
    membership_.uuid = opts.uuid;
    membership_.resumes = 0;
    return completed_work();
}

void ProcessGroupTutti::become(std::shared_ptr<Group> next, int rank, int size) {
    next->set_timeout(options_->timeout);
    const auto left = group_.exchange(std::move(next));
    rank_ = rank;
    size_ = size;
    sequence_ = 0;
    if (left) {
        WithoutGil unlocked;
        left->shutdown(std::chrono::milliseconds(0));
    }
}

void ProcessGroupTutti::meet(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                             std::chrono::milliseconds timeout, const tt__job_rounds *rounds) {
    const std::unique_lock<std::mutex> alone(membership_.changing, std::try_to_lock);
    if (!alone)
        refuse("meet: another thread is changing this process group");
    std::function<bool()> in_vain;
    if (rounds)
        in_vain = [rounds] { return tt__job_rounds_in_vain(rounds); };
    if (Group *group = group_.find())
        group->abort("the job goes on with other members");
    become(Group::join(store, rank, size, timeout, hooks_, TIMEOUT_OF_GROUP, std::move(in_vain)), rank, size);
}

#if TUTTI_TORCH_2_15

// ---- memory

// All that the group has is given back: shared memory, connections, threads. Symmetric tensors stay.
void ProcessGroupTutti::suspend() {
    const std::unique_lock<std::mutex> alone(membership_.changing, std::try_to_lock);
    if (!alone)
        refuse("suspend: another thread is changing this process group");
    const std::shared_ptr<Group> group = group_.get();
    WithoutGil unlocked;
    barrier({})->wait(); // no rank waits for a call of a group that others have left
    group_.exchange(nullptr);
    group->shutdown(kDrain);
}

// The same ranks meet again.
void ProcessGroupTutti::resume() {
    const std::unique_lock<std::mutex> alone(membership_.changing, std::try_to_lock);
    if (!alone)
        refuse("resume: another thread is changing this process group");
    if (group_.find())
        refuse("resume: expected a process group that suspend() has suspended");
    const std::string prefix = c10::str("resume/", membership_.uuid, "/", membership_.resumes++);
    WithoutGil unlocked;
    group_.exchange(Group::join(c10::make_intrusive<c10d::PrefixStore>(prefix, store_), getRank(), getSize(),
                                options_->timeout, hooks_));
}

std::unordered_map<std::string, uint64_t> ProcessGroupTutti::getMemoryStats() {
    const tt__shared_bytes bytes = shared_bytes(*group_.get());
    return {{"group_shared", bytes.area}, {"symmetric_used", bytes.used}, {"symmetric_limit", bytes.limit}};
}

#endif

} // namespace tutti_torch

#endif
