//! What a test has planned: calls that fail, answers that differ, and threads that are held at a dangerous place.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How a call is to fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) returned: i64,
    pub(crate) errno: i32,
}

/// The answer to a call, in place of the natural one.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// `None`: there is no answer.
    pub(crate) event: Option<u32>,
    pub(crate) status: i32,
    pub(crate) raw: bool,
    pub(crate) garbage: bool,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) private_data: Vec<u8>,
}

#[derive(Debug, Default)]
struct Plans {
    failures: Vec<(String, u32, u32, Failure)>,
    answers: Vec<(String, Answer)>,
    delays: Vec<(String, Duration)>,
    inside: Vec<&'static str>,
}

static PLANS: Mutex<Plans> = Mutex::new(Plans {
    failures: Vec::new(),
    answers: Vec::new(),
    delays: Vec::new(),
    inside: Vec::new(),
});
/// How many plans there are, so that a call with none takes no lock.
static PLANNED: AtomicUsize = AtomicUsize::new(0);

/// A thread is held no longer than this, whatever was planned.
const LONGEST: Duration = Duration::from_secs(20);

fn plans() -> MutexGuard<'static, Plans> {
    PLANS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count(plans: &Plans) {
    let planned = plans.failures.len() + plans.answers.len() + plans.delays.len();
    PLANNED.store(planned, Ordering::SeqCst);
}

/// Lets calls of `name` fail: after `skip` good ones, `times` times.
pub(crate) fn plan_failure(name: String, skip: u32, times: u32, failure: Failure) {
    let mut plans = plans();
    plans.failures.push((name, skip, times, failure));
    count(&plans);
}

/// Takes the failure that is planned for this call of `name`.
pub(crate) fn failure(name: &str) -> Option<Failure> {
    if PLANNED.load(Ordering::SeqCst) == 0 {
        return None;
    }
    let mut plans = plans();
    let place = plans.failures.iter().position(|plan| plan.0 == name)?;
    let (_, skip, times, failure) = &mut plans.failures[place];
    let failure = *failure;
    if *skip > 0 {
        *skip -= 1;
        return None;
    }
    *times -= 1;
    if *times == 0 {
        plans.failures.remove(place);
    }
    count(&plans);
    Some(failure)
}

/// Replaces the answer to the next call of `name`.
pub(crate) fn plan_answer(name: String, answer: Answer) {
    let mut plans = plans();
    plans.answers.push((name, answer));
    count(&plans);
}

/// Takes the answer that is planned for this call of `name`.
pub(crate) fn answer(name: &str) -> Option<Answer> {
    if PLANNED.load(Ordering::SeqCst) == 0 {
        return None;
    }
    let mut plans = plans();
    let place = plans.answers.iter().position(|plan| plan.0 == name)?;
    let answer = plans.answers.remove(place).1;
    count(&plans);
    Some(answer)
}

/// Holds every thread at the dangerous place of `name` for so long; zero ends that, also for those held now.
pub(crate) fn plan_delay(name: String, delay: Duration) {
    let mut plans = plans();
    plans.delays.retain(|plan| plan.0 != name);
    if !delay.is_zero() {
        plans.delays.push((name, delay));
    }
    count(&plans);
}

/// Whether threads are to be held at the dangerous place of `name`.
pub(crate) fn is_delayed(name: &str) -> bool {
    PLANNED.load(Ordering::SeqCst) != 0 && plans().delays.iter().any(|plan| plan.0 == name)
}

/// Holds the calling thread, which has let go of every lock.
pub(crate) fn hold(name: &'static str) {
    let start = Instant::now();
    plans().inside.push(name);
    loop {
        let delay = plans()
            .delays
            .iter()
            .find(|plan| plan.0 == name)
            .map_or(Duration::ZERO, |plan| plan.1);
        if start.elapsed() >= delay.min(LONGEST) {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let mut plans = plans();
    if let Some(place) = plans.inside.iter().position(|inside| *inside == name) {
        plans.inside.remove(place);
    }
}

/// How many threads are held at the dangerous place of `name`.
pub(crate) fn inside(name: &str) -> usize {
    plans()
        .inside
        .iter()
        .filter(|inside| **inside == name)
        .count()
}

/// Forgets every plan.
pub(crate) fn reset() {
    let mut plans = plans();
    plans.failures.clear();
    plans.answers.clear();
    plans.delays.clear();
    count(&plans);
}
