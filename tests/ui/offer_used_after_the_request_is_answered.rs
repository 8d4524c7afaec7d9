// error[E0505]: the offer is a view of the request's own event, which the answer acknowledges.
fn answer(request: rdmacm::ConnRequest) -> u8 {
    let offer = request.offer();
    drop(request.accept());
    offer.initiator_depth()
}

fn main() {
    let _ = answer;
}
