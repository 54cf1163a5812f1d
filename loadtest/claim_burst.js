// A burst of claims over gRPC: each is submitted, then waited for until it has its device. The thresholds below are the
// verdict. Run by `cargo xtask loadtest claim_burst`; see README.md for what it proves.
//
// Environment: SERVER (host:port), CLAIMS, CLIENTS, SUMMARY (file of the JSON summary).

import grpc from 'k6/net/grpc';
import encoding from 'k6/encoding';
import { Rate, Trend } from 'k6/metrics';

const SERVER = __ENV.SERVER || '127.0.0.1:7070';
const CLAIMS = Number(__ENV.CLAIMS || 1000);
const CLIENTS = Number(__ENV.CLIENTS || 50);
const SUMMARY = __ENV.SUMMARY || 'target/loadtest/claim_burst.json';

const DRIVER = 'gpu.loadtest.example';
const DEVICES_PER_POOL = 8;
// Calls at once while cleaning up.
const PAGE = 50;

const submitMs = new Trend('submit_ms', true);
const allocatedMs = new Trend('allocated_ms', true);
const errors = new Rate('errors');
// Times of day in ms; the first and the last say how long the burst took, without setup and teardown.
const clock = new Trend('clock');

export const options = {
  scenarios: {
    burst: { executor: 'shared-iterations', vus: CLIENTS, iterations: CLAIMS, maxDuration: '5m' },
  },
  setupTimeout: '2m',
  teardownTimeout: '5m',
  summaryTrendStats: ['min', 'med', 'p(95)', 'p(99)', 'max'],
  thresholds: {
    // Every claim was tried.
    iterations: [`count>=${CLAIMS}`],
    // A claim that was refused, lost or not allocated.
    errors: ['rate<0.01'],
    // Submit answers after the commit is durable.
    submit_ms: ['p(95)<2000'],
    // From sending Submit to the answer of Wait.
    allocated_ms: ['p(95)<10000'],
  },
};

const client = new grpc.Client();
client.load([import.meta.resolve('../libs/rpc/proto').replace('file://', '')], 'dray/v1/dray.proto');

let connected = false;

// One connection per client, kept for all its claims.
function connect() {
  if (!connected) {
    client.connect(SERVER, { plaintext: true, timeout: '10s' });
    connected = true;
  }
}

function call(method, message) {
  connect();
  return client.invoke(`dray.v1.${method}`, message, { timeout: '60s' });
}

async function must(method, message) {
  connect();
  const answer = await client.asyncInvoke(`dray.v1.${method}`, message, { timeout: '60s' });
  if (answer.status !== grpc.StatusOK) {
    throw new Error(`${method}: ${answer.error ? answer.error.message : answer.status}`);
  }
  return answer.message;
}

async function inBatches(items, work) {
  for (let first = 0; first < items.length; first += PAGE) {
    await Promise.all(items.slice(first, first + PAGE).map(work));
  }
}

// As many devices as claims, so that the burst ends with every device taken. Names are of this run alone.
export async function setup() {
  const run = `loadtest-${Date.now()}`;
  const deviceClass = {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'DeviceClass',
    metadata: { name: run },
    spec: { selectors: [{ cel: { expression: `device.driver == "${DRIVER}"` } }] },
  };
  await must('Objects/Apply', { json: encoding.b64encode(JSON.stringify(deviceClass)) });
  const pools = [];
  for (let left = CLAIMS; left > 0; left -= DEVICES_PER_POOL) {
    pools.push({ name: `${run}-${pools.length}`, devices: Math.min(left, DEVICES_PER_POOL) });
  }
  await inBatches(pools, (pool) => must('Pools/Publish', published(pool)));
  return { run, pools };
}

function published(pool) {
  const devices = Array.from({ length: pool.devices }, (_, i) => ({ name: `gpu-${i}` }));
  return { driver: DRIVER, pool: pool.name, node_name: pool.name, devices };
}

export default function (data) {
  const began = Date.now();
  clock.add(began);
  const exactly = { device_class_name: data.run, allocation_mode: 'ExactCount', count: 1 };
  const submitted = call('Units/Submit', {
    namespace: data.run,
    client_id: `${__VU}-${__ITER}`,
    claims: [{ spec: { devices: { requests: [{ name: 'gpu', exactly }] } } }],
  });
  if (submitted.status !== grpc.StatusOK) {
    errors.add(true);
    console.error(`submit: ${submitted.error ? submitted.error.message : submitted.status}`);
    return;
  }
  submitMs.add(Date.now() - began);
  const waited = call('Units/Wait', { uid: submitted.message.unitUid, timeout: '45s' });
  const ended = Date.now();
  clock.add(ended);
  const allocated = waited.status === grpc.StatusOK && waited.message.phase === 'UNIT_PHASE_ALLOCATED';
  errors.add(!allocated);
  if (allocated) {
    allocatedMs.add(ended - began);
  } else {
    console.error(`wait: ${waited.error ? waited.error.message : waited.message.reason}`);
  }
}

// Leaves the server as it was, so that the next run finds room.
export async function teardown(data) {
  for (;;) {
    const page = await must('Units/List', { namespace: data.run, page_size: PAGE });
    const left = (page.units || []).filter((unit) => unit.phase !== 'UNIT_PHASE_RELEASING');
    if (left.length === 0) {
      break;
    }
    await inBatches(left, (unit) => must('Units/Delete', { uid: unit.uid }));
  }
  await inBatches(data.pools, (pool) => must('Pools/Withdraw', { driver: DRIVER, pool: pool.name }));
  await must('Objects/Delete', { kind: 'deviceclasses', name: data.run });
}

export function handleSummary(data) {
  const metric = (name) => (data.metrics[name] || { values: {} }).values;
  const trend = (name) => {
    const values = metric(name);
    return { min: values.min, p50: values.med, p95: values['p(95)'], p99: values['p(99)'], max: values.max };
  };
  // A run that broke off before its first claim has no metric `iterations`, and its thresholds were never looked at.
  const iterations = metric('iterations').count || 0;
  const kept = Object.values(data.metrics).every((m) => Object.values(m.thresholds || {}).every((t) => t.ok));
  const passed = kept && iterations >= CLAIMS;
  const summary = {
    script: 'claim_burst',
    server: SERVER,
    claims: CLAIMS,
    clients: CLIENTS,
    iterations,
    errors: metric('errors').rate,
    claims_per_s: iterations / ((metric('clock').max - metric('clock').min) / 1000),
    submit_ms: trend('submit_ms'),
    allocated_ms: trend('allocated_ms'),
    passed,
    k6: data,
  };
  const line = (name, t) => `${name.padEnd(14)}p50 ${shown(t.p50)}  p95 ${shown(t.p95)}  p99 ${shown(t.p99)}  max ${shown(t.max)}\n`;
  const text =
    `\nclaim_burst: ${iterations} of ${CLAIMS} claims by ${CLIENTS} clients, errors ${(summary.errors * 100).toFixed(2)} %\n` +
    line('submit', summary.submit_ms) +
    line('allocated', summary.allocated_ms) +
    `thresholds    ${passed ? 'passed' : 'CROSSED'}\n`;
  return { stdout: text, [SUMMARY]: `${JSON.stringify(summary, null, 2)}\n` };
}

function shown(ms) {
  return ms === undefined ? '-' : `${ms.toFixed(0)} ms`;
}
