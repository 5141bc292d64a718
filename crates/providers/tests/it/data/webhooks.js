// Signs and checks webhooks with the official packages: a JSON request comes in, a JSON answer goes out.
const Stripe = require("stripe");
const { Webhook } = require("standardwebhooks");

const { webhooks } = new Stripe("sk_test_unused");

const signStripe = ({ body, secret, at }) =>
  webhooks.generateTestHeaderString({ payload: body, secret, timestamp: at });
const signStandard = ({ body, secret, at, id }) =>
  new Webhook(secret).sign(id, new Date(at * 1000), body);
const verifyStripe = ({ body, secret, headers }) =>
  webhooks.signature.verifyHeader(body, headers["stripe-signature"], secret, 300);
const verifyStandard = ({ body, secret, headers }) =>
  new Webhook(secret).verify(body, headers, { jsonParse: false });

const taken = (verify) => (ask) => {
  try {
    verify(ask);
    return true;
  } catch {
    return false;
  }
};

const asked = JSON.parse(require("fs").readFileSync(0, "utf8"));
const answer = {
  now: () => Math.floor(Date.now() / 1000),
  sign_stripe: () => asked.list.map(signStripe),
  sign_standard: () => asked.list.map(signStandard),
  verify_stripe: () => asked.list.map(taken(verifyStripe)),
  verify_standard: () => asked.list.map(taken(verifyStandard)),
}[asked.do]();
process.stdout.write(JSON.stringify(answer));
