//! Steering and seeing what is posted by calls: see `standin/src/calls.rs`.

use std::ffi::c_void;

use super::abi::Request;
use super::provider::ALL;
use super::{RXE0, Standin, symbol};

/// What the provider of the first device can do by calls. The numbers are masks of `IBV_QP_EX_WITH_*`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Skill {
    pub(crate) has: bool,
    /// With one of these no queue pair is made.
    pub(crate) refuses: u32,
    /// These are granted, and have no entry.
    pub(crate) lacks: u32,
}

/// How batches are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    List,
    Calls,
}

impl Standin {
    /// Starts anew, with a provider that posts batches in this way, and records.
    pub(crate) fn posting(way: Way) -> Self {
        let standin = Self::start();
        standin.skill(Skill {
            has: way == Way::Calls,
            ..Skill::default()
        });
        standin.record();
        standin
    }

    /// Changes what the provider can do.
    pub(crate) fn skill(&self, skill: Skill) {
        call!(standin_calls(RXE0, skill.has.into(), skill.refuses.into(), skill.lacks.into()):
            fn(usize, i32, u64, u64));
    }

    /// Changes whether the first device has atomics (`ibv_atomic_cap`).
    pub(crate) fn atomics(&self, cap: u32) {
        call!(standin_atomics(RXE0, cap): fn(usize, u32));
    }

    /// What the requests say that are posted to the send queue of a pair and not complete.
    pub(crate) fn requests(&self, qp: usize) -> Vec<Request> {
        assert_ne!(qp, ALL, "of one pair");
        let mut requests = Vec::new();
        loop {
            let mut request = Request::default();
            let to: *mut c_void = (&raw mut request).cast();
            let found = call!(standin_request(qp, requests.len(), to):
                fn(usize, usize, *mut c_void) -> i32);
            if found == 0 {
                return requests;
            }
            requests.push(request);
        }
    }

    /// How many lists were posted by calls since the record began.
    pub(crate) fn lists_by_calls(&self) -> usize {
        let [started, completed] =
            ["ibv_wr_start", "ibv_wr_complete"].map(|name| self.calls_of(name).len());
        assert_eq!(started, completed, "each list that is begun ends");
        completed
    }
}
