//! The description of a video, with places for what differs from video to video.
//!
//! JSON, as the provider wants it. In every text `{{videoId}}`, `{{reservationId}}` and
//! `{{renderId}}` are replaced; names and numbers are left alone. A place that we do not know is a
//! mistake, found when the program starts.

use serde_json::Value;
use uuid::Uuid;

const PLACES: [&str; 3] = ["videoId", "reservationId", "renderId"];

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("is not JSON: {0}")]
    Json(String),
    #[error("must be an object with `timeline` and `output`")]
    Shape,
    #[error("must not have a `callback`: Tashika sets it")]
    Callback,
    #[error("has the place {{{{{0}}}}}; known are videoId, reservationId and renderId")]
    Place(String),
}

/// A template that can be filled.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Value);

impl Template {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| TemplateError::Json(error.to_string()))?;
        let shape = value.get("timeline").is_some_and(Value::is_object)
            && value.get("output").is_some_and(Value::is_object);
        if !shape {
            return Err(TemplateError::Shape);
        }
        if value.get("callback").is_some() {
            return Err(TemplateError::Callback);
        }
        check(&value)?;
        Ok(Self(value))
    }

    /// The description of one video, with the address to call back.
    #[must_use]
    pub fn fill(
        &self,
        video_id: i64,
        reservation_id: Uuid,
        render_id: Uuid,
        callback: Option<&str>,
    ) -> Value {
        let values = [video_id.to_string(), reservation_id.to_string(), render_id.to_string()];
        let mut filled = self.0.clone();
        replace(&mut filled, &values);
        if let Some(callback) = callback {
            filled["callback"] = Value::from(callback);
        }
        filled
    }
}

/// The names between `{{` and `}}`.
fn places(text: &str) -> impl Iterator<Item = &str> {
    text.split("{{").skip(1).filter_map(|rest| rest.split("}}").next().map(str::trim))
}

fn check(value: &Value) -> Result<(), TemplateError> {
    match value {
        Value::String(text) => match places(text).find(|name| !PLACES.contains(name)) {
            Some(unknown) => Err(TemplateError::Place(unknown.chars().take(40).collect())),
            None => Ok(()),
        },
        Value::Array(items) => items.iter().try_for_each(check),
        Value::Object(map) => map.values().try_for_each(check),
        _ => Ok(()),
    }
}

fn replace(value: &mut Value, values: &[String; 3]) {
    match value {
        Value::String(text) if text.contains("{{") => {
            for (name, value) in PLACES.iter().zip(values) {
                // With or without spaces inside, as people write it.
                for place in [format!("{{{{{name}}}}}"), format!("{{{{ {name} }}}}")] {
                    *text = text.replace(&place, value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, values)),
        Value::Object(map) => map.values_mut().for_each(|item| replace(item, values)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn places_are_filled_in_texts_at_every_depth() {
        let text = r#"{"timeline": {"tracks": [{"src": "https://a/{{videoId}}.mp4?r={{ renderId }}", "n": 1}]},
            "output": {"format": "mp4"}, "x": "{{reservationId}}"}"#;
        let template = Template::parse(text).unwrap();
        let (r, v) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let filled = template.fill(42, r, v, Some("https://b/c"));
        assert_eq!(filled["timeline"]["tracks"][0]["src"], format!("https://a/42.mp4?r={v}"));
        assert_eq!(filled["timeline"]["tracks"][0]["n"], 1);
        assert_eq!(filled["x"], r.to_string());
        assert_eq!(filled["callback"], "https://b/c");
        assert_eq!(template.fill(1, r, v, None).get("callback"), None);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let json = |value: Value| Template::parse(&value.to_string());
        assert!(matches!(Template::parse("{"), Err(TemplateError::Json(_))));
        assert_eq!(json(json!({"timeline": {}})), Err(TemplateError::Shape));
        assert_eq!(json(json!([])), Err(TemplateError::Shape));
        let callback = json!({"timeline": {}, "output": {}, "callback": "x"});
        assert_eq!(json(callback), Err(TemplateError::Callback));
        let typo = json!({"timeline": {"a": ["{{videoID}}"]}, "output": {}});
        assert_eq!(json(typo), Err(TemplateError::Place("videoID".into())));
    }
}
