//! The rules that RDMA hardware needs, the type that keeps each, and the test that shows it.
//!
//! A device reads and writes the memory of a process by itself, for as long as it has been told to. The compiler knows nothing
//! of it. So each rule below is kept by a type that safe code cannot get around, and none rests on a destructor having run: what
//! is forgotten leaks. The tests named `ui/..` do not compile, beside a twin that does; `standin_..` run on a stand-in for the C
//! libraries that ends the process at a wrong call, with a provider that completes, delays, reorders, refuses and invents as a
//! test asks, and scribbles over what is posted until it is told that it is over; `device_..` run on soft-RoCE.
//!
//! | rule | kept by | shown by |
//! |---|---|---|
//! | Memory outlives its work request | a post *moves* the [`Buf`](crate::Buf) into a slot of the queue's ring; the [`Completion`](crate::Completion) moves it out. The ring is dropped when `ibv_destroy_qp` has returned 0, else never | `standin_rings`: `buffers_of_a_pair_that_cannot_be_destroyed_never_come_back`, `a_forgotten_pair_keeps_everything`; `ui/buffer_used_after_its_post` |
//! | Nobody reads what the device may write | the same move: there is no reference to posted bytes. Memory that a peer may touch at any time is [`Exposed`](crate::Exposed): copies in and out | `ui/buffer_used_after_it_went_into_an_array`, `ui/reference_into_exposed_memory`, `ui/memory_used_while_it_is_registered` |
//! | Borrowed memory comes back before its borrow ends | [`Lent`](crate::Lent) and [`LentMut`](crate::LentMut) can be posted in a [`Scope`](crate::Scope) only, whose end polls, flushes, destroys the pair, or ends the process | `standin_scope`, `standin_scope_next`; `ui/lent_memory_outside_a_scope`, `ui/lent_memory_of_the_scopes_closure`, `ui/scope_carried_out_of_its_closure`, `ui/two_scopes_swapped` |
//! | A region outlives the use of its keys | a [`Pool`](crate::Pool) is alive while a buffer of it is, posted or not, and deregisters before it frees; a [`Window`](crate::Window) keeps its region, and a queue pair that of a [read into it](crate::SendQueue::read_into) | `standin_memory`: `memory_that_the_device_keeps_is_never_freed`; `standin_windows`; `standin_read_into`; `ui/pool_of_memory_that_is_only_borrowed` |
//! | Every range given to the device is registered, in its domain or for nobody | a request has only whole buffers and loans, with their own keys; [`Inline`](crate::Inline) bytes are copied in the call | `standin_datapath`: `what_does_not_fit_is_refused_before_it_is_posted`; `ui/inline_bytes_changed_before_their_batch_is_submitted` |
//! | Queue pair before completion queue and domain, before the id, before its channel | each object holds a share of what it needs | `standin_drop_orders`, all 5,040 orders; `device_drop_orders` |
//! | A device stays open for what was made on it, beyond every id and its own removal | a [`Context`](crate::Context) holds an id of its own, on which librdmacm counts | `device_pinned`, under valgrind: `a_domain_pins_its_device_beyond_every_id_and_its_removal`, beside the same in C, where valgrind must see the fault; `device_removal` |
//! | One completion for a request | the `wr_id` must be the one in the slot, and taking it empties the slot. A repeated, stale or invented one is [`Foreign`](crate::Foreign) | `standin_rings`: `a_number_that_is_nobodys_is_foreign_and_takes_nothing`, `a_completion_after_the_pairs_end_is_its_own_or_foreign`; `standin_srq`: `several_completion_queues_report_one_queues_receives` |
//! | A failed post is no refusal | buffers come back only of a request that the provider *names* as not taken: [`Refused`](crate::Refused), [`Partly`](crate::Partly); `ibv_wr_complete` names none | `standin_datapath`: `a_post_that_fails_without_a_name_may_be_posted_all_the_same`; `standin_batch`; `standin_wr`: `after_a_failed_complete_all_counts_as_posted`; `device_wr`: `soft_roce_sends_what_a_failed_complete_has_not_posted` |
//! | No more requests than the queue holds, no more completions than theirs | slots are counted before the call; the depths attached to a completion queue are at most its size | `standin_datapath`: `a_send_queue_holds_exactly_its_depth`; `standin_rings`: `a_pair_that_does_not_fit_takes_no_room` |
//! | Only what is defined of a failed completion is read | what the request was comes from its slot; lengths are 0 | `standin_close`: `what_a_device_says_of_a_length_is_never_believed_beyond_the_buffers` |
//! | An address handle lives until its sends have completed | peers are registered with the queue, which keeps their handles | `standin_datagram`; `ui/datagram_sent_to_nobody` |
//! | Every event is acknowledged before its object ends | events are copied and acknowledged before they are handed out; a [`ConnRequest`](crate::ConnRequest) owns its one | `standin_accept`, `standin_async`; `ui/private_data_kept_beyond_the_request` |
//! | One consumer of a completion queue, one producer of a work queue | [`CompletionQueue`](crate::CompletionQueue), [`SendQueue`](crate::SendQueue) and [`ReceiveQueue`](crate::ReceiveQueue) are used through `&mut` and cannot be cloned | `send_sync`; `ui/completion_kept_over_the_next_poll` |
//!
//! # A queue pair that is only dropped
//!
//! [`QueuePair::close`](crate::QueuePair::close) is the end in order: error state, poll, destroy. A bare drop destroys at once,
//! and what was posted comes back when the completion queue was seen empty afterwards. It does not hand itself to the owner of
//! the completion queue to be drained there: the id under it could not end before somebody polled, a peer would not learn of the
//! end, and a queue that nobody polls any more would keep it for ever. Two kinds of providers make the difference: some clean a
//! completion queue when a pair ends, and with it completions of a shared receive queue, whose buffers then come back with that
//! queue's end only; and one (qedr) keeps a pointer to the pair in the entries that are left, and follows it when they are polled.
//! On it, end every pair by `close`.
//!
//! # A process that forks
//!
//! [`std::process::Command`] may be used at any time (`device_memory`: `starting_a_program_leaves_connections_alone`): what it
//! starts has memory of its own, and nothing of this crate runs in the child before.
//!
//! A bare `fork` is an unsafe call, and who makes it sees to two things. In the child nothing of this crate may be used or
//! dropped: it shares the parent's descriptors, and would end the parent's objects. And a kernel before Linux 5.12 may leave the
//! parent without the memory that the device uses: after a fork the side that writes to a page first gets a copy of it, and if
//! that is the parent, the device goes on with the page that the child has. Since then the kernel copies such pages for the
//! child. On an older one set the environment variable `RDMAV_FORK_SAFE` before the program starts, or call `ibv_fork_init`
//! ([man 3](https://man7.org/linux/man-pages/man3/ibv_fork_init.3.html); it is in `rdmacm-sys`) before the first registration,
//! after which it fails with `EINVAL`. Registered pages are not in a child then (`MADV_DONTFORK`), nor is what else lies on them.
//! This crate does not call it: it costs a system call for each registration. `ibv_is_fork_initialized` (rdma-core 35 and later)
//! tells whether it is on, or not needed. On such a kernel the same holds for a `Command` that has to fork, as with
//! `uid`, `gid`, `groups` or `pre_exec`, while other threads write to registered memory.
//!
//! # What safe code can still do
//!
//! Send the peer a key and an address: whoever knows them may write to [`Exposed`](crate::Exposed) memory until it is revoked,
//! which is what it is for. Wait for a peer that never answers, in the calls whose documentation says `Blocks`.
