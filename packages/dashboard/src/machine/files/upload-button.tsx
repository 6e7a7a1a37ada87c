// A button that lets the person choose files to upload.
import { useRef } from 'react';
import { Button } from '../../ui/button.tsx';
import { type ChosenFile, chosenFiles } from './dropped-files.ts';

type Props = { reason: string | undefined; onChoose: (files: ChosenFile[]) => void };

export function UploadButton({ reason, onChoose }: Props) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <Button kind="primary" reason={reason} onClick={() => input.current?.click()}>
        Upload
      </Button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Files to upload"
        onChange={({ target }) => {
          onChoose(chosenFiles(target.files ?? []));
          // Otherwise the same file could not be chosen again.
          target.value = '';
        }}
      />
    </>
  );
}
