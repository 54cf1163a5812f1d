//! Trace context survives the way through text.

use super::*;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn reads_the_standard_s_example() {
    let context = parse_traceparent(TRACEPARENT).unwrap();
    assert!(context.is_sampled() && context.is_remote());
    assert_eq!(context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[test]
fn refuses_what_is_no_traceparent() {
    for text in [
        "",
        "00",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
    ] {
        assert!(parse_traceparent(text).is_none(), "{text}");
    }
    assert!(
        parse_traceparent(&TRACEPARENT.replacen("00", "01", 1)).is_some(),
        "later versions keep these fields"
    );
}

#[test]
fn a_span_joins_its_caller_s_trace_and_passes_it_on() {
    let provider = SdkTracerProvider::builder().with_sampler(Sampler::AlwaysOn).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = tracing::info_span!("serve");
        set_parent_from(&span, TRACEPARENT);
        let sent = span.in_scope(current_traceparent).unwrap();
        assert_eq!(sent.split('-').nth(1), TRACEPARENT.split('-').nth(1), "same trace");
        assert_ne!(sent.split('-').nth(2), TRACEPARENT.split('-').nth(2), "another span");
        assert!(parse_traceparent(&sent).is_some());
    });
}

#[test]
fn without_traces_there_is_no_traceparent() {
    assert_eq!(current_traceparent(), None);
    set_parent_from(&Span::current(), TRACEPARENT);
    link_to(&Span::current(), TRACEPARENT);
}
