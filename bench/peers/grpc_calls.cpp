/* Peer: calls of gRPC's C++ (Debian's), beside `tutti bench rpc`. The generic interface carries bytes as they are, so
 * that no code of protobuf's runs: the least that a call of gRPC can cost.
 *
 *   grpc_calls unix|tcp SIZE...     a server process and a client; prints JSON, one object a line
 *
 * For each size a call whose argument has so many bytes and which returns nothing ("there"), and one that returns it;
 * of size 0 the former alone. At last calls a second with 64 under way. Medians and least of five repetitions. */
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int repetitions = 5, under_way = 64;
constexpr double repetition_us = 60000;
const char take[] = "/bench/take", echo[] = "/bench/echo";

grpc::ByteBuffer bytes_of(size_t size) {
    grpc::Slice slice(size);
    std::memset(const_cast<uint8_t *>(slice.begin()), 1, size);
    return grpc::ByteBuffer(&slice, 1);
}

void pin_to(int cpu) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) < 2)
        return;
    CPU_ZERO(&one);
    for (int i = 0, n = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all) && n++ == cpu)
            CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* A call that the server waits for, reads and answers; then it waits for the next one. */
class Served {
  public:
    Served(grpc::AsyncGenericService *service, grpc::ServerCompletionQueue *queue)
        : service(service), queue(queue), stream(&context) {
        service->RequestCall(&context, &stream, queue, queue, this);
    }

    void go_on(bool ok) {
        if (state == ends || !ok) {
            delete this;
        } else if (state == waits) {
            new Served(service, queue);
            state = reads;
            stream.Read(&message, this);
        } else {
            state = ends;
            if (context.method() != echo)
                message = grpc::ByteBuffer(&nothing, 1);
            stream.WriteAndFinish(message, grpc::WriteOptions(), grpc::Status::OK, this);
        }
    }

  private:
    enum { waits, reads, ends } state = waits;
    grpc::AsyncGenericService *service;
    grpc::ServerCompletionQueue *queue;
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream;
    grpc::ByteBuffer message;
    grpc::Slice nothing;
};

/* Serve until the client, whose end of the pipe `ready` is told the port, ends. */
void serve(const std::string &address, int ready) {
    grpc::ServerBuilder builder;
    grpc::AsyncGenericService service;
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterAsyncGenericService(&service);
    std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (!server || write(ready, &port, sizeof port) != sizeof port)
        std::exit(1);
    new Served(&service, queue.get());
    void *tag;
    for (bool ok; queue->Next(&tag, &ok);)
        static_cast<Served *>(tag)->go_on(ok);
}

/* A call under way. */
struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer reply;
    grpc::Status status;
};

class Client {
  public:
    explicit Client(const std::string &address) {
        grpc::ChannelArguments arguments;
        arguments.SetMaxReceiveMessageSize(-1);
        channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
        stub = std::make_unique<grpc::GenericStub>(channel);
    }

    void begin(const char *method, const grpc::ByteBuffer &argument) {
        auto call = new Call;
        call->reader = stub->PrepareUnaryCall(&call->context, method, argument, &queue);
        call->reader->StartCall();
        call->reader->Finish(&call->reply, &call->status, call);
    }

    /* Wait for the call that is done next, and free it. */
    void wait() {
        void *tag = nullptr;
        bool ok = false;
        queue.Next(&tag, &ok);
        std::unique_ptr<Call> call(static_cast<Call *>(tag));
        if (ok && call->status.ok())
            return;
        std::fprintf(stderr, "grpc_calls: a call failed: %s\n", call ? call->status.error_message().c_str() : "?");
        std::exit(1);
    }

    void repeat(const char *method, const grpc::ByteBuffer &argument, long calls, int window) {
        int open = 0;
        for (long i = 0; i < calls; i++) {
            if (open == window)
                wait();
            else
                open++;
            begin(method, argument);
        }
        while (open--)
            wait();
    }

  private:
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<grpc::GenericStub> stub;
    grpc::CompletionQueue queue;
};

double time_of(Client &client, const char *method, const grpc::ByteBuffer &argument, long calls, int window) {
    auto start = std::chrono::steady_clock::now();
    client.repeat(method, argument, calls, window);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

void measure(Client &client, const char *what, const char *method, size_t size, int window) {
    grpc::ByteBuffer argument = bytes_of(size);
    std::vector<double> usec;
    long calls = 3;
    double us;
    while ((us = time_of(client, method, argument, calls, window)) < repetition_us / 8)
        calls *= 4;
    calls = std::max(1L, static_cast<long>(static_cast<double>(calls) * repetition_us / us));
    for (int i = 0; i < repetitions; i++)
        usec.push_back(time_of(client, method, argument, calls, window) / static_cast<double>(calls));
    std::sort(usec.begin(), usec.end());
    std::printf("{\"bench\":\"rpc\",\"peer\":\"grpc\",\"call\":\"%s\",\"bytes\":%zu,\"usec_median\":%.3f,"
                "\"usec_min\":%.3f",
                what, size, usec[repetitions / 2], usec[0]);
    if (window > 1)
        std::printf(",\"calls_per_sec\":%.0f", 1e6 / usec[repetitions / 2]);
    std::puts("}");
    std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    bool tcp = argc > 1 && !std::strcmp(argv[1], "tcp");
    int ready[2], port = 0;
    char path[] = "/tmp/grpc_calls_XXXXXX";
    if (argc < 3 || (!tcp && std::strcmp(argv[1], "unix") != 0) || pipe(ready) || (!tcp && !mkdtemp(path)))
        return 2;
    std::string address = tcp ? "127.0.0.1:0" : std::string("unix:") + path + "/socket";
    pid_t parent = getpid(), server = fork(); /* before anything of gRPC, which does not survive it */
    if (!server) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            return 1;
        pin_to(1);
        serve(address, ready[1]);
        return 0;
    }
    close(ready[1]);
    pin_to(0);
    if (server < 0 || read(ready[0], &port, sizeof port) != sizeof port)
        return 1;
    {
        Client client(tcp ? "127.0.0.1:" + std::to_string(port) : address);
        for (int i = 2; i < argc; i++) {
            size_t size = std::strtoull(argv[i], nullptr, 10);
            measure(client, size ? "there" : "empty", take, size, 1);
            if (size)
                measure(client, "there and back", echo, size, 1);
        }
        measure(client, "64 under way", take, 0, under_way);
    }
    kill(server, SIGKILL);
    waitpid(server, nullptr, 0);
    if (!tcp) {
        unlink((std::string(path) + "/socket").c_str());
        rmdir(path);
    }
    return 0;
}
