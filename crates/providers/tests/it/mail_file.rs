//! Mail into a folder.

use tashika_domain::mail::{MailFault, MailResult};
use tashika_providers::mail::{FilePostman, Parcel, Postman as _};

use crate::smtp::{fault, parcel, sent};

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_mail_is_one_file_however_often_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let postman = FilePostman::new(folder.path().join("outbox")).unwrap();
    postman.probe().await.unwrap();
    for _ in 0..2 {
        let posted = postman.send(&parcel("taro", 1)).await;
        let response = "taro-1@tashika.example.eml".to_owned();
        assert_eq!(posted.result, MailResult::Sent { response });
        assert!(!posted.exchange.request.contains("taro@"), "{posted:?}");
    }
    let mail = folder.path().join("outbox/taro-1@tashika.example.eml");
    let mail = std::fs::read_to_string(mail).unwrap();
    assert!(mail.contains("To: taro@example.com\r\n"));
    assert!(mail.ends_with("--\r\n"));
    assert_eq!(names(&folder.path().join("outbox")), ["taro-1@tashika.example.eml"]);
}

#[tokio::test]
async fn no_name_leaves_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("outbox");
    let postman = FilePostman::new(&inside).unwrap();
    for id in ["../../escape", "/etc/x", ".hidden", "a/b", "a_b"] {
        let parcel = Parcel { message_id: id.to_owned(), ..parcel("ok", 1) };
        assert!(sent(&postman.send(&parcel).await), "{id}");
    }
    assert_eq!(names(&inside).len(), 5, "{:?}", names(&inside));
    assert_eq!(names(folder.path()), ["outbox"]);
}

#[tokio::test]
async fn a_folder_that_is_gone_fails_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let postman = FilePostman::new(folder.path().join("outbox")).unwrap();
    std::fs::remove_dir(folder.path().join("outbox")).unwrap();
    let posted = postman.send(&parcel("ok", 1)).await;
    assert_eq!(fault(&posted), (MailFault::Template, None));
    assert!(!posted.exchange.sent);
    assert!(postman.probe().await.is_err());
}
