// error[E0521]: the offer is lent to the closure only.
use rdmacm::{ConnParam, ConnRequest, Offer};

fn answer<'a>(request: ConnRequest, kept: &mut Option<Offer<'a>>) {
    drop(request.accept_from(|offer| {
        *kept = Some(offer);
        ConnParam::new()
    }));
}

fn main() {
    let _ = answer;
}
