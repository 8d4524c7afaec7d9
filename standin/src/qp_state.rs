//! Which changes of state a queue pair allows, and with which attributes.
//!
//! The table is that of the InfiniBand specification, which the kernel checks for every driver but those of iWARP.

use crate::c::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH, IBV_QP_AV, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN,
    IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE,
    IBV_QP_TIMEOUT, ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type,
};

const RESET: ibv_qp_state = ibv_qp_state::IBV_QPS_RESET;
const INIT: ibv_qp_state = ibv_qp_state::IBV_QPS_INIT;
const RTR: ibv_qp_state = ibv_qp_state::IBV_QPS_RTR;
const RTS: ibv_qp_state = ibv_qp_state::IBV_QPS_RTS;
const SQD: ibv_qp_state = ibv_qp_state::IBV_QPS_SQD;
const SQE: ibv_qp_state = ibv_qp_state::IBV_QPS_SQE;
const ERR: ibv_qp_state = ibv_qp_state::IBV_QPS_ERR;

/// The kinds that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rc,
    Uc,
    Ud,
}

type Mask = ibv_qp_attr_mask;

/// What a change must and may bring besides the state; `None`: there is no such change.
fn change(kind: Kind, from: ibv_qp_state, to: ibv_qp_state) -> Option<(Mask, Mask)> {
    use Kind::{Rc, Uc, Ud};
    let first = IBV_QP_PKEY_INDEX
        | IBV_QP_PORT
        | match kind {
            Ud => IBV_QP_QKEY,
            Rc | Uc => IBV_QP_ACCESS_FLAGS,
        };
    let path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    let sends = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    let later = IBV_QP_CUR_STATE
        | match kind {
            Ud => IBV_QP_QKEY,
            Uc => IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE,
            Rc => {
                IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER
            }
        };
    let drained = IBV_QP_PKEY_INDEX
        | match kind {
            Ud => IBV_QP_QKEY,
            Uc => IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE,
            Rc => {
                sends
                    | IBV_QP_PORT
                    | IBV_QP_AV
                    | IBV_QP_MAX_DEST_RD_ATOMIC
                    | IBV_QP_ALT_PATH
                    | IBV_QP_ACCESS_FLAGS
                    | IBV_QP_MIN_RNR_TIMER
                    | IBV_QP_PATH_MIG_STATE
            }
        };
    let change = match (from, to) {
        (RESET | INIT | RTR | RTS | SQD | SQE | ERR, RESET)
        | (INIT | RTR | RTS | SQD | SQE | ERR, ERR) => (0, 0),
        (RESET, INIT) => (first, 0),
        (INIT, INIT) => (0, first),
        (INIT, RTR) => match kind {
            Ud => (0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
            Uc => (
                path,
                IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
            ),
            Rc => (
                path | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
            ),
        },
        (RTR, RTS) if kind == Rc => (IBV_QP_SQ_PSN | sends, later),
        (RTR, RTS) => (IBV_QP_SQ_PSN, later),
        (RTS | SQD, RTS) => (0, later),
        (RTS, SQD) => (0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
        (SQD, SQD) => (0, drained),
        (SQE, RTS) => match kind {
            Ud => (0, IBV_QP_CUR_STATE | IBV_QP_QKEY),
            Uc => (0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS),
            Rc => return None,
        },
        _ => return None,
    };
    Some(change)
}

/// Whether a queue pair may change from one state to another with these attributes.
pub(crate) fn is_ok(
    kind: ibv_qp_type,
    from: ibv_qp_state,
    to: ibv_qp_state,
    mask: ibv_qp_attr_mask,
) -> bool {
    let kind = match kind {
        ibv_qp_type::IBV_QPT_UD => Kind::Ud,
        ibv_qp_type::IBV_QPT_UC => Kind::Uc,
        _ => Kind::Rc,
    };
    change(kind, from, to)
        .is_some_and(|(must, may)| mask & must == must && mask & !(must | may | IBV_QP_STATE) == 0)
}

/// Whether a queue pair over iWARP may change its state: the attributes do not matter.
pub(crate) fn leads(from: ibv_qp_state, to: ibv_qp_state) -> bool {
    matches!(
        (from, to),
        (_, RESET | ERR)
            | (RESET | INIT, INIT)
            | (INIT, RTR)
            | (RTR | RTS | SQD, RTS)
            | (RTS | SQD, SQD)
    )
}
