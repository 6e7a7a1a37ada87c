// Tests the settings of the object store: they must be complete or absent, and no error shows a secret.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { readObjectStoreConfig } from '../src/blobs/config.ts';

const ALL = {
  SANDBAR_S3_ENDPOINT: 'https://s3.example.com',
  SANDBAR_S3_BUCKET: 'sandbar',
  SANDBAR_S3_ACCESS_KEY_ID: 'id',
  SANDBAR_S3_SECRET_ACCESS_KEY: 'very-secret',
};

describe('the settings of the object store', () => {
  it('are all there or none', () => {
    assert.equal(readObjectStoreConfig({}), undefined);
    assert.deepEqual(readObjectStoreConfig(ALL), {
      endpoint: 'https://s3.example.com',
      bucket: 'sandbar',
      region: 'us-east-1',
      accessKeyId: 'id',
      secretAccessKey: 'very-secret',
    });
    for (const name of Object.keys(ALL)) {
      assert.throws(
        () => readObjectStoreConfig({ ...ALL, [name]: '' }),
        (error: Error) => error.message.includes(name) && !error.message.includes('very-secret'),
      );
    }
  });

  it('refuse an address that is no address, or that has a password in it', () => {
    for (const endpoint of ['s3.example.com', 'ftp://s3.example.com', 'https://id:very-secret@s3.example.com']) {
      assert.throws(
        () => readObjectStoreConfig({ ...ALL, SANDBAR_S3_ENDPOINT: endpoint }),
        (error: Error) => error.message.includes('SANDBAR_S3_ENDPOINT') && !error.message.includes('very-secret'),
      );
    }
  });
});
