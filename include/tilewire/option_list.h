// The one list of options. The fields of Options, their parsing, the TILEWIRE_* names, docs/options.md and the text
// that ranks compare all follow from it: a new option is one more entry here (then run scripts/generate_options_page).
//
// OPTION(kind, field, default, allowed, scope, meaning)
//   kind     text, secret (never printed), integer, bytes (accepts KiB, MiB, GiB, TiB) or real
//   field    the member of Options; its variable is TILEWIRE_ and the name in capitals
//   allowed  range(low, high), power_of_two(low, high), multiple_of(step, low, high), one_of("a|b"), counts(),
//            text_like("description"), at_least_chars(n)
//   scope    agree: all ranks must have the same value, own: each rank may have its own
#pragma once

#define TILEWIRE_OPTION_LIST(OPTION)                                                                                 \
  /* Who and where */                                                                                                \
  OPTION(integer, rank, -1, range(-1, 1048575), own, "number of this process; -1: taken from the launcher")          \
  OPTION(integer, world_size, -1, range(-1, 1048576), agree, "number of ranks; -1: taken from the launcher")         \
  OPTION(text, rendezvous, "", text_like("host:port"), own, "address of rank 0's rendezvous; empty: launcher's")     \
  OPTION(text, job, "", text_like("any name"), agree, "name shared by the processes of one job and no other")        \
  OPTION(secret, secret, "", at_least_chars(16), own, "shared secret that authenticates the ranks to one another")   \
  OPTION(text, layout, "", counts(), agree, "ranks of each node, as in 3,1; empty: found from the hosts")            \
  OPTION(text, interface, "", text_like("interface name or address"), own,                                           \
         "where rank 0 listens and the others connect from; no matter where all ranks meet at a loopback address")   \
  OPTION(integer, max_ranks, 4096, range(1, 4096), agree, "a job of more ranks is refused")                          \
  /* Time */                                                                                                         \
  OPTION(real, deadline_s, 600, range(0.001, 1e6), own, "s; longest wait in a call before it is an error")           \
  OPTION(real, connect_deadline_s, 60, range(0.001, 1e6), own, "s; longest wait for all ranks to come")              \
  OPTION(real, death_s, 10, range(0.01, 1e6), agree, "s without a heartbeat after which a rank counts as dead")      \
  OPTION(integer, heartbeat_ms, 500, range(1, 1000000), agree, "ms between heartbeats on a control connection")      \
  OPTION(integer, spin_us, 20, range(0, 1000000), own, "us that a host wait spins before it yields and sleeps")      \
  /* Memory */                                                                                                       \
  OPTION(bytes, arena_initial_bytes, 64LL << 20, multiple_of(4096, 4096, 1LL << 46), agree,                          \
         "bytes of each half of the arena that are there from the start")                                            \
  OPTION(bytes, arena_reserve_bytes, 64LL << 30, multiple_of(2LL << 20, 2LL << 20, 1LL << 37), agree,                \
         "address space of one half of the arena; the arena cannot grow past it")                                    \
  OPTION(bytes, user_arena_reserve_bytes, 64LL << 30, multiple_of(2LL << 20, 2LL << 20, 1LL << 37), agree,           \
         "address space for tensors made by comm.empty()")                                                           \
  OPTION(integer, max_chunks_per_source, 0, range(0, 1048576), agree,                                                \
         "most chunks that one rank sends in a call, the stride of the flag area; 0: 1024, or what fits the ranks")  \
  /* Transport */                                                                                                    \
  OPTION(text, transport, "auto", text_like("auto or the name of a transport"), agree,                               \
         "what moves chunks between nodes; tilewire doctor lists what is there")                                     \
  OPTION(integer, ring_entries, 1024, power_of_two(16, 1 << 20), own, "commands that a command queue holds")         \
  OPTION(real, emulated_bandwidth_gbps, 0, range(0, 1e6), agree, "Gbit/s of each emulated link; 0: no limit")        \
  OPTION(real, emulated_latency_us, 0, range(0, 1e7), agree, "us; one-way latency of each emulated link")            \
  OPTION(text, emulated_personality, "rc", one_of("rc|relaxed|srd"), agree,                                          \
         "rc: writes arrive in order; relaxed: in any order; srd: in any order, counted by the receiver")            \
  OPTION(integer, emulated_seed, 1, range(0, INT64_MAX), agree, "seed of the emulated reordering and delays")        \
  OPTION(integer, nics, 0, range(0, 64), agree,                                                                      \
         "NICs of each rank; 0: as many as are near it and no other rank needs")                                     \
  OPTION(integer, proxy_near_nic, 1, range(0, 1), own, "1: the proxy's thread stays on the NUMA node of its NICs")   \
  OPTION(text, verbs_library, "libibverbs.so.1", text_like("library name or path"), own,                             \
         "where the functions of libibverbs are taken from")                                                         \
  OPTION(text, rc_device, "", text_like("devices or ports, commas between"), own,                                    \
         "RDMA ports that this rank may take, as in mlx5_0 or mlx5_0:1,mlx5_2:1; empty: those that work")            \
  OPTION(integer, rc_gid_index, -1, range(-1, 255), own, "row of the port's GID table; -1: RoCE v2 of an address")   \
  OPTION(text, rc_signal, "immediate", one_of("immediate|ordered|completion"), agree,                                \
         "how a chunk is announced: with its write; by a word behind it, where the network keeps the order of "      \
         "packets; by a word after its acknowledgement")                                                             \
  OPTION(integer, rc_channels, 1, range(1, 16), agree, "queue pairs to each peer")                                   \
  OPTION(integer, rc_send_entries, 256, range(16, 32768), own, "requests under way on each queue pair")              \
  OPTION(integer, rc_receive_entries, 512, range(16, 32768), own, "immediates that wait at each queue pair")         \
  OPTION(text, rc_mtu, "port", one_of("port|256|512|1024|2048|4096"), own, "bytes of a packet, at most")             \
  OPTION(integer, rc_traffic_class, 0, range(0, 255), own, "traffic class of RoCE packets: DSCP times 4, plus ECN")  \
  OPTION(integer, rc_service_level, 0, range(0, 15), own, "service level; on RoCE the priority")                     \
  OPTION(integer, rc_timeout, 17, range(1, 31), own, "a packet is sent again after 4.096 us times 2 to this power")  \
  OPTION(integer, rc_retries, 6, range(0, 7), own, "times a packet is sent again before the peer counts as lost")    \
  OPTION(integer, rc_rnr_retries, 6, range(0, 7), own, "times that a receiver may be not ready; 7: no limit")        \
  OPTION(integer, rc_relaxed_ordering, 0, range(0, 1), own, "1: the device may write data, not words, in any order") \
  OPTION(text, efa_library, "libefa.so.1", text_like("library name or path"), own,                                   \
         "where the functions of libefa are taken from")                                                             \
  OPTION(text, srd_device, "", text_like("devices, commas between"), own,                                            \
         "EFA devices that this rank may take, as in rdmap0s6 or rdmap0s6,rdmap0s7; empty: those that work")         \
  OPTION(integer, srd_channels, 1, range(1, 16), agree, "queue pairs of a rank, each for all its peers")             \
  OPTION(integer, srd_send_entries, 256, range(16, 32768), own, "requests under way on each queue pair")             \
  OPTION(integer, srd_receive_entries, 256, range(16, 32768), own,                                                   \
         "immediates of each peer that wait at each queue pair; fewer where the device holds fewer")                 \
  OPTION(text, srd_unsolicited, "auto", one_of("auto|on|off"), agree,                                                \
         "on: immediates take no receive entries; auto: where the device can do that")                               \
  OPTION(text, arrivals, "proxy", one_of("proxy|relay"), own,                                                        \
         "who publishes counted arrivals on a CPU rank: its proxy, or a relay role as on a GPU")                     \
  OPTION(text, fault, "", text_like("a fault script"), own, "faults that the fault transport injects")               \
  /* Work */                                                                                                         \
  OPTION(integer, workers, 0, range(0, 4096), own, "compute threads of a CPU rank; 0: from the number of cores")     \
  OPTION(text, device, "cpu", one_of("cpu|cuda"), agree, "what ranks are: cores and host memory, or GPUs")           \
  OPTION(integer, cuda_device, -1, range(-1, 1023), own,                                                             \
         "GPU of this rank, as CUDA numbers those it can see; -1: in turn for the ranks of a host")                  \
  OPTION(integer, sms, 0, range(0, 4096), own, "SMs that a GPU rank may take, where ranks share a GPU; 0: all")      \
  OPTION(text, wire, "", text_like("path of a socket"), agree,                                                       \
         "where the wire process listens that joins nodes of GPU ranks on one machine; empty: there is none")        \
  /* Watching and testing */                                                                                         \
  OPTION(text, log_level, "warn", one_of("error|warn|info|debug"), own, "least severe messages that are logged")     \
  OPTION(text, trace_file, "", text_like("file name"), own,                                                          \
         "JSON file that gets a timeline at close, with the rank before its suffix; empty: no trace")                \
  OPTION(integer, trace_events, 65536, range(1, 1LL << 28), own, "events that a rank's trace holds")                 \
  OPTION(integer, test_delay_us, 0, range(0, 10000000), own, "tests: each role step waits 0 to this many us")        \
  OPTION(integer, first_epoch, 1, range(1, int64_t{1} << 59), agree, "tests: number of the first call")
