//! The queue in the API's description.
//!
//! Short on purpose: requests and answers follow QStash, whose SDKs are the clients.

use utoipa::openapi::path::{HttpMethod, Operation, OperationBuilder, Parameter, ParameterIn};
use utoipa::openapi::path::{ParameterBuilder, Paths};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{Content, Info, OpenApi, Required, Response, ResponseBuilder};

const TAG: &str = "queue";

const ABOUT: &str = "Follows the QStash API: headers, objects and errors are those of the official \
                     `@upstash/qstash` and `qstash` clients.";

use HttpMethod::{Delete, Get, Patch, Post};

/// Every operation: method, path, what it does.
const OPERATIONS: [(HttpMethod, &str, &str); 43] = [
    (Post, "/v2/publish/{destination}", "Publish a message to a URL or a group of URLs"),
    (Post, "/v2/enqueue/{queue}/{destination}", "Put a message into a queue"),
    (Post, "/v2/batch", "Publish several messages, all or none"),
    (Get, "/v2/messages/{messageId}", "Look a message up"),
    (Delete, "/v2/messages/{messageId}", "Cancel a message"),
    (Delete, "/v2/messages", "Cancel messages by id, by filter, or all"),
    (Get, "/v2/dlq", "List dead letters"),
    (Delete, "/v2/dlq", "Remove dead letters"),
    (Get, "/v2/dlq/{dlqId}", "Look a dead letter up"),
    (Delete, "/v2/dlq/{dlqId}", "Remove a dead letter"),
    (Post, "/v2/dlq/retry", "Send dead letters again"),
    (Post, "/v2/dlq/retry/{dlqId}", "Send a dead letter again"),
    (Get, "/v2/queues", "List queues"),
    (Post, "/v2/queues", "Make or change a queue"),
    (Get, "/v2/queues/{queue}", "Look a queue up"),
    (Delete, "/v2/queues/{queue}", "Remove a queue and cancel what waits in it"),
    (Post, "/v2/queues/{queue}/pause", "Pause a queue"),
    (Post, "/v2/queues/{queue}/resume", "Resume a queue"),
    (Get, "/v2/topics", "List groups of URLs"),
    (Get, "/v2/topics/{group}", "Look a group up"),
    (Patch, "/v2/topics/{group}", "Set the headers of a group's messages"),
    (Delete, "/v2/topics/{group}", "Remove a group"),
    (Post, "/v2/topics/{group}/endpoints", "Add URLs to a group"),
    (Delete, "/v2/topics/{group}/endpoints", "Remove URLs from a group"),
    (Get, "/v2/schedules", "List schedules"),
    (Post, "/v2/schedules/{destination}", "Make or overwrite a schedule"),
    (Get, "/v2/schedules/{scheduleId}", "Look a schedule up"),
    (Delete, "/v2/schedules/{scheduleId}", "Remove a schedule"),
    (Patch, "/v2/schedules/{scheduleId}/pause", "Pause a schedule"),
    (Patch, "/v2/schedules/{scheduleId}/resume", "Resume a schedule"),
    (Get, "/v2/events", "List what happened to messages"),
    (Get, "/v2/logs", "The same, as `logs`"),
    (Get, "/v2/flowControl", "List flow controls"),
    (Get, "/v2/flowControl/{key}", "Look a flow control up"),
    (Post, "/v2/flowControl/{key}/pause", "Pause a flow control"),
    (Post, "/v2/flowControl/{key}/resume", "Resume a flow control"),
    (Post, "/v2/flowControl/{key}/pin", "Pin limits, so that messages do not change them"),
    (Post, "/v2/flowControl/{key}/unpin", "Let messages change the limits again"),
    (Post, "/v2/flowControl/{key}/resetRate", "Begin a new period"),
    (Post, "/v2/flowControl/{key}/reset", "Begin a new period"),
    (Get, "/v2/globalParallelism", "How many deliveries are under way"),
    (Get, "/v2/keys", "The keys that deliveries are signed with"),
    (Post, "/v2/keys/rotate", "Replace the current key by the next one"),
];

pub(super) fn of_queue() -> OpenApi {
    let mut paths = Paths::new();
    for (method, path, summary) in OPERATIONS {
        paths.add_path_operation(path, vec![method], operation(path, summary));
    }
    OpenApi::new(Info::new("", ""), paths)
}

fn operation(path: &str, summary: &str) -> Operation {
    let answer = ResponseBuilder::new()
        .description("Done")
        .content("application/json", Content::builder().build())
        .build();
    let mut operation = OperationBuilder::new()
        .tag(TAG)
        .summary(Some(summary))
        .description(Some(ABOUT))
        .response("200", answer)
        .response("401", wrong("The token is not known."))
        .response("default", wrong("Anything else that is wrong."));
    for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        operation = operation.parameter(parameter(name));
    }
    operation.build()
}

fn parameter(name: &str) -> Parameter {
    let about = (name == "destination")
        .then_some("A URL, unescaped and with its query, or the name of a group of URLs");
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(about)
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

fn wrong(description: &str) -> Response {
    let sentence = ObjectBuilder::new().schema_type(Type::String);
    let body = ObjectBuilder::new().property("error", sentence).required("error");
    ResponseBuilder::new()
        .description(description)
        .content("application/json", Content::new(Some(body)))
        .build()
}

#[cfg(test)]
mod tests {
    use super::super::WORDS;
    use super::*;

    #[test]
    fn what_is_described_is_routed_and_the_other_way_round() {
        let word = |path: &str| path.split('/').nth(2).unwrap_or_default().to_owned();
        for (_, path, _) in OPERATIONS {
            assert!(WORDS.contains(&word(path).as_str()), "{path}");
        }
        for routed in WORDS {
            assert!(OPERATIONS.iter().any(|(_, path, _)| word(path) == routed), "{routed}");
        }
    }
}
